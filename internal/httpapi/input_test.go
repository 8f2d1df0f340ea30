package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// reads is an execution that gives back what it reads.
func reads(begun chan<- cove.ExecutionID) executeFunc {
	return func(ctx context.Context, r execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		begun <- id
		buf := make([]byte, 1024)
		for {
			n, err := r.Stdin.Read(buf)
			if n > 0 {
				out.Stdout(buf[:n])
			}
			if err != nil {
				out.Stderr([]byte(err.Error()))
				return finished(id), nil
			}
		}
	}
}

func TestStdinIsStreamed(t *testing.T) {
	h := start(t, withKeys)
	begun := make(chan cove.ExecutionID, 1)
	h.fake.do = reads(begun)
	with := func(method, path string, body io.Reader, secret string) *http.Response {
		t.Helper()
		req, _ := http.NewRequest(method, h.url+path, body)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-API-Key", secret)
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := with("POST", "/execute/stream", strings.NewReader(interactive), "cove_right")
	id := <-begun
	path := "/executions/" + string(id) + "/stdin"
	if r := with("POST", path, strings.NewReader("x"), "cove_other"); r.StatusCode != 404 {
		t.Errorf("another key's input: status %d", r.StatusCode)
	}

	body := bufio.NewReader(resp.Body)
	pr, pw := io.Pipe()
	done := make(chan *http.Response, 1)
	go func() { done <- with("POST", path, pr, "cove_right") }()
	for _, line := range []string{"one\n", "two\n"} {
		io.WriteString(pw, line) // chunk by chunk: each comes back before the next
		for {
			got, err := body.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(got, "data: ") {
				if want := fmt.Sprintf("data: {\"data\":%q}\n", line); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				break
			}
		}
	}
	if r := with("POST", path, strings.NewReader("x"), "cove_right"); r.StatusCode != 409 {
		t.Errorf("a second input: status %d", r.StatusCode)
	}
	pw.Close()
	if r := <-done; r.StatusCode != 204 {
		t.Errorf("the input: status %d", r.StatusCode)
	}
	events, _ := readEvents(t, body)
	if got := output(t, events, "stderr"); string(got) != "EOF" || events[len(events)-1].event != "done" {
		t.Errorf("events %v", events)
	}
	if r := with("POST", path, strings.NewReader("x"), "cove_right"); r.StatusCode != 404 {
		t.Errorf("after the end: status %d", r.StatusCode)
	}
}

func TestBrokenInputIsNotTheEnd(t *testing.T) {
	h := start(t, nil)
	begun := make(chan cove.ExecutionID, 1)
	h.fake.do = reads(begun)
	resp := h.streamed(t.Context(), h.client, interactive)
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /executions/%s/stdin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf", <-begun)
	time.Sleep(50 * time.Millisecond) // sleep: the server reads half of it, of which nothing tells
	conn.Close()
	events, _ := readEvents(t, resp.Body)
	if got := output(t, events, "stderr"); string(got) != io.ErrUnexpectedEOF.Error() {
		t.Errorf("the program read %q", got)
	}
	if got := output(t, events, "stdout"); string(got) != "half" {
		t.Errorf("the program read %q", got)
	}
}

// TestInputAfterTheEnd: a program that ends leaves no request behind that waits for more input.
func TestInputAfterTheEnd(t *testing.T) {
	h := start(t, nil)
	begun, release := make(chan cove.ExecutionID, 1), make(chan struct{})
	h.fake.do = func(_ context.Context, r execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		begun <- id
		r.Stdin.Read(make([]byte, 1))
		<-release
		return finished(id), nil
	}
	resp := h.streamed(t.Context(), h.client, interactive)
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"POST /executions/%s/stdin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmore\r\n", <-begun)
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	// The body is never ended, and yet the answer comes and the connection is closed.
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	b, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 409 ")) {
		t.Errorf("got %q (%v)", b, err)
	}
	readEvents(t, resp.Body)
}

func TestStdinStreamNeedsAStream(t *testing.T) {
	h := start(t, nil)
	if e := h.post("/execute", interactive).error(t); e.Code != string(cove.InvalidArgument) ||
		!strings.Contains(e.Error, "/execute/stream") {
		t.Errorf("%+v", e)
	}
	both := `{"language":"python","code":"x","stdin":"a","stdin_stream":true}`
	if e := h.post("/execute/stream", both).error(t); e.Code != string(cove.InvalidArgument) {
		t.Errorf("%+v", e)
	}
}
