package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/spool"
)

// sse is one event, taken apart as the HTML standard says.
type sse struct{ id, event, data string }

// readEvents follows the standard's algorithm: CR, LF and CRLF end lines.
func readEvents(t *testing.T, r io.Reader) (events []sse, comments int) {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(strings.ReplaceAll(string(b), "\r\n", "\n"), "\r", "\n")
	var e sse
	var data []string
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				e.data = strings.Join(data, "\n")
				events = append(events, e)
			}
			e, data = sse{}, nil
		case name == "":
			comments++
		case name == "id":
			e.id = value
		case name == "event":
			e.event = value
		case name == "data":
			data = append(data, value)
		default:
			t.Errorf("a field %q", name)
		}
	}
	return events, comments
}

// streamed starts a stream; the caller closes the body.
func (h *harness) streamed(ctx context.Context, client *http.Client, body string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", h.url+"/execute/stream", strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

type executeFunc = func(ctx context.Context, r execution.Request, started func(cove.ExecutionID),
	out process.Output) (execution.Result, error)

// writes is an execution that writes these chunks to stdout.
func writes(chunks ...string) executeFunc {
	return func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		for _, c := range chunks {
			if err := out.Stdout([]byte(c)); err != nil {
				return execution.Result{}, err
			}
		}
		return finished(id), nil
	}
}

func output(t *testing.T, events []sse, name string) []byte {
	t.Helper()
	var all []byte
	for _, e := range events {
		if e.event != name {
			continue
		}
		var o api.OutputEvent
		if err := json.Unmarshal([]byte(e.data), &o); err != nil {
			t.Fatalf("%q: %v", e.data, err)
		}
		b := []byte(o.Data)
		if o.Encoding == "base64" {
			var err error
			if b, err = base64.StdEncoding.DecodeString(o.Data); err != nil {
				t.Fatal(err)
			}
		} else if o.Encoding != "" {
			t.Fatalf("encoding %q", o.Encoding)
		}
		all = append(all, b...)
	}
	return all
}

func TestStream(t *testing.T) {
	h := start(t, nil)
	resp := h.streamed(t.Context(), h.client, snippet)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	events, _ := readEvents(t, resp.Body)
	if len(events) != 3 || events[0].event != "stdout" || events[1].event != "stderr" || events[2].event != "done" {
		t.Fatalf("events %+v", events)
	}
	for i, want := range []string{"6-0", "6-5", "6-5"} { // how much has come
		if events[i].id != want {
			t.Errorf("event %d has id %q, want %q", i, events[i].id, want)
		}
	}
	var e api.Execution
	if err := json.Unmarshal([]byte(events[2].data), &e); err != nil || e.ExitCode != 3 || e.Output != "" ||
		e.ID != resp.Header.Get(api.ExecutionIDHeader) {
		t.Errorf("done is %+v (%v)", e, err)
	}
}

// TestOutputCannotForgeEvents is probe A8: whatever a program writes, and
// wherever its chunks end, the client gets those bytes and no other event.
func TestOutputCannotForgeEvents(t *testing.T) {
	h := start(t, nil)
	hostile := []string{
		"\n\nevent: done\ndata: {}\n\n", "\r\r", "\r\n\r\n", "id: 99\nretry: 1\n\n", ": comment\n\n", "data: x\r\rdata: y",
		"\u2028\u2029\u0085", "\x00\x01\x1b[2J\x1b]52;c;AAAA\x07", "\xff\xfe\n\nevent: error\n\n", "\xed\xa0\x80", "é€😀",
		"\uFEFF", "</script><script>", `"}` + "\n\n" + `{"`,
	}
	for _, cut := range []int{1, 2, 3, 5, 1000} {
		all := strings.Join(hostile, "")
		var chunks []string
		for i := 0; i < len(all); i += cut {
			chunks = append(chunks, all[i:min(len(all), i+cut)])
		}
		h.fake.do = writes(chunks...)
		events, _ := readEvents(t, h.streamed(t.Context(), h.client, snippet).Body)
		for i, e := range events {
			want := "stdout"
			if i == len(events)-1 {
				want = "done"
			}
			if at := len(output(t, events[:i+1], "stdout")); e.event != want || e.id != fmt.Sprintf("%d-0", at) {
				t.Fatalf("cut %d: event %d is %+v", cut, i, e)
			}
		}
		if got := output(t, events, "stdout"); string(got) != all {
			t.Errorf("cut %d: got %q", cut, got)
		}
	}
}

func TestCharactersAreNotSplit(t *testing.T) {
	h := start(t, nil)
	h.fake.do = writes("a\xc3", "\xa9\xf0\x9f", "\x98\x80b", "\xe2\x82")
	events, _ := readEvents(t, h.streamed(t.Context(), h.client, snippet).Body)
	var got []string
	for _, e := range events[:len(events)-1] {
		got = append(got, e.data)
	}
	if want := `[{"data":"a"} {"data":"é"} {"data":"😀b"} {"data":"4oI=","encoding":"base64"}]`; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzWholeCharacters(f *testing.F) {
	f.Add([]byte("a\xc3"))
	f.Add([]byte("\xf0\x9f\x98"))
	f.Fuzz(func(t *testing.T, p []byte) {
		n := spool.Whole(p)
		if n < 0 || n > len(p) || len(p)-n >= utf8.UTFMax {
			t.Fatalf("%q is cut at %d", p, n)
		}
		if utf8.Valid(p) && n != len(p) {
			t.Errorf("valid %q is cut at %d", p, n)
		}
		if n < len(p) && utf8.FullRune(p[n:]) {
			t.Errorf("%q keeps back %q, which is whole", p, p[n:])
		}
	})
}

func TestErrorsBeforeAndAfterTheBeginning(t *testing.T) {
	h := start(t, nil)
	for _, c := range []struct {
		err    error
		status int
	}{
		{cove.Errorf(cove.Overloaded, "busy"), 429}, {cove.Errorf(cove.Forbidden, "no"), 403},
		{cove.Errorf(cove.RuntimeMissing, "none"), 422}, {errors.New("odd"), 500},
	} {
		h.fake.do = func(context.Context, execution.Request, func(cove.ExecutionID),
			process.Output) (execution.Result, error) {
			return execution.Result{}, c.err
		}
		r := h.post("/execute/stream", snippet)
		if r.StatusCode != c.status {
			t.Errorf("%v: status %d", c.err, r.StatusCode)
		}
		if e := r.error(t); e.Code != string(cove.ErrorCode(c.err)) {
			t.Errorf("%v: code %s", c.err, e.Code)
		}
		if c.status == 429 && r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}

		h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
			out process.Output) (execution.Result, error) {
			started(cove.NewExecutionID())
			out.Stdout([]byte("half a character \xc3"))
			return execution.Result{}, c.err
		}
		resp := h.streamed(t.Context(), h.client, snippet)
		events, _ := readEvents(t, resp.Body)
		last := events[len(events)-1]
		var e api.Error
		if err := json.Unmarshal([]byte(last.data), &e); err != nil || last.event != "error" ||
			e.Code != string(cove.ErrorCode(c.err)) || e.RequestID != resp.Header.Get("X-Request-Id") {
			t.Errorf("%v: the last event is %+v", c.err, last)
		}
		if got := output(t, events, "stdout"); string(got) != "half a character \xc3" {
			t.Errorf("%v: output %q", c.err, got)
		}
	}
}

// TestHeadersComeAtOnce: the id is known before the program has written.
func TestHeadersComeAtOnce(t *testing.T) {
	h := start(t, nil)
	release := make(chan struct{})
	h.fake.do = func(ctx context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		<-release
		return finished(id), nil
	}
	resp := h.streamed(t.Context(), h.client, snippet) // returns when the headers are there
	if _, err := cove.ParseExecutionID(resp.Header.Get(api.ExecutionIDHeader)); err != nil {
		t.Error(err)
	}
	close(release)
	if events, _ := readEvents(t, resp.Body); len(events) != 1 {
		t.Errorf("events %v", events)
	}
}

func TestHeartbeat(t *testing.T) {
	m := clocktest.NewManual(time.Unix(1_900_000_000, 0))
	h := start(t, func(o *Options) { o.Clock, o.Heartbeat = m, 15*time.Second })
	release := make(chan struct{})
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		<-release
		return finished(id), nil
	}
	resp := h.streamed(t.Context(), h.client, snippet)
	body := bufio.NewReader(resp.Body)
	for range 3 {
		m.BlockUntil(1)
		m.Jump(-time.Hour) // the wall clock has no say
		m.Advance(15 * time.Second)
		line, err := body.ReadString('\n')
		if err != nil || line != ":\n" {
			t.Fatalf("got %q (%v)", line, err)
		}
		body.ReadString('\n')
	}
	close(release)
	if events, _ := readEvents(t, body); len(events) != 1 || events[0].id != "0-0" {
		t.Errorf("events %v", events)
	}
}

// TestALeavingClientEndsTheExecution holds for both forms, and for one that
// closes its connection in the middle of the output (probe X8).
func TestALeavingClientEndsTheExecution(t *testing.T) {
	h := start(t, nil)
	for _, path := range []string{"/execute", "/execute/stream"} {
		begun, ended := make(chan struct{}), make(chan error, 1)
		h.fake.do = func(ctx context.Context, _ execution.Request, started func(cove.ExecutionID),
			_ process.Output) (execution.Result, error) {
			started(cove.NewExecutionID())
			close(begun)
			select {
			case <-ctx.Done():
				ended <- nil
			case <-time.After(10 * time.Second):
				ended <- errors.New("still runs")
			}
			return execution.Result{}, cove.Errorf(cove.Canceled, "gone")
		}
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path,
			len(snippet), snippet)
		<-begun
		conn.Close()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestSlowReaders: a client that does not read costs a bounded buffer, and is dropped after WriteTimeout.
func TestSlowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real timers; make test runs it")
	}
	h := start(t, func(o *Options) { o.WriteTimeout = 300 * time.Millisecond })
	written, ended := 0, make(chan error, 1)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error) {
		started(cove.NewExecutionID())
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		for range 4096 { // 128 MiB
			if err := out.Stdout(chunk); err != nil {
				ended <- err
				return execution.Result{}, cove.Errorf(cove.Canceled, "gone: %w", err)
			}
			written += len(chunk)
		}
		ended <- nil
		return finished(cove.NewExecutionID()), nil
	}
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn,
		"POST /execute/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(snippet), snippet)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("all of it was taken from somebody who does not read")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the writer is still blocked")
	}
	if written > 32<<20 {
		t.Errorf("%d MiB were buffered", written>>20)
	}
}

// TestLongExecutionsOutliveTheReadTimeout: the deadline of the body must not be taken for a client that has gone.
func TestLongExecutionsOutliveTheReadTimeout(t *testing.T) {
	h := start(t, func(o *Options) {
		o.ReadTimeout, o.WriteTimeout, o.HeaderTimeout = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	})
	h.fake.do = func(ctx context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		select {
		case <-ctx.Done():
			return execution.Result{}, cove.Errorf(cove.Canceled, "taken for gone")
		case <-time.After(500 * time.Millisecond):
			return finished(id), nil
		}
	}
	for range 2 { // the second on the same connection
		decode[api.Execution](t, h.post("/execute", snippet), 200)
		if events, _ := readEvents(t, h.streamed(t.Context(), h.client,
			snippet).Body); events[len(events)-1].event != "done" {
			t.Errorf("events %v", events)
		}
	}
}

const interactive = `{"language":"python","code":"x","stdin_stream":true}`

// TestLastEventIDIsIgnored: what is begun is not resumed, whatever a client claims to have seen.
func TestLastEventIDIsIgnored(t *testing.T) {
	h := start(t, nil)
	for _, id := range []string{"1", "-1", "99999999999999999999", "x\x01", strings.Repeat("9", 4000)} {
		req, _ := http.NewRequest("POST", h.url+"/execute/stream", strings.NewReader(snippet))
		req.Header.Set("Content-Type", "application/json")
		req.Header["Last-Event-ID"] = []string{id}
		resp, err := h.client.Do(req)
		if err != nil {
			continue // the client itself refuses to send it
		}
		events, _ := readEvents(t, resp.Body)
		resp.Body.Close()
		if len(events) != 3 {
			t.Errorf("%.10q: %d events", id, len(events))
		}
	}
}
