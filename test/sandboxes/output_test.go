package sandboxes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/cove-sandbox/cove/api"
)

const (
	many     = 64
	written  = 17 << 20 // by each program, in bytes
	kept     = 16 << 20 // of it: the most that a request may ask for
	recorded = 1 << 20  // of it in the history
	most     = 200 << 20
)

// TestMemoryOfOutputs: the server's memory is bounded whatever programs write. So many programs write at once, wait for
// each other, and their outputs arrive byte for byte in every way that there is.
func TestMemoryOfOutputs(t *testing.T) {
	l := newLab(t)
	if err := os.Mkdir(l.in("gate"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.in("gate"), 0o777); err != nil {
		t.Fatal(err)
	}
	l.must("cove", "server", "start")
	c := outputClient{t: t, lab: l, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", l.in("run/cove.sock"))
		}}}}
	defer c.http.CloseIdleConnections()
	before := l.peak()

	// Programs with even numbers are followed as they write, the others answered at their end.
	ids, answered := make([]string, many), make(chan struct{})
	begun := [2]chan int{make(chan int, many), make(chan int, many)}
	var running, answers errgroup.Group
	for i := range many {
		begin := func(id string) { ids[i] = id; begun[i%2] <- i }
		if i%2 == 0 {
			running.Go(func() error { return c.stream(i, begin) })
		} else {
			running.Go(func() error { return c.wait(i, begin, answered) })
		}
	}
	l.eventually("every program has written", func() bool {
		done, err := filepath.Glob(l.in("gate/*"))
		return err == nil && len(done) == many
	})
	wrote := l.peak()
	for n := range many / 2 {
		if i := <-begun[0]; n < 8 {
			from := int64(n) << 20
			resumed, err := c.resume(ids[i], from) // before the program can end
			if err != nil {
				t.Fatal(err)
			}
			answers.Go(func() error {
				defer resumed.Close()
				return c.follow(i, resumed, from)
			})
		}
	}
	l.write("gate/open", "")
	for range many / 2 {
		<-begun[1]
	}
	close(answered) // no answer is read before every one is there
	if err := errors.Join(running.Wait(), answers.Wait()); err != nil {
		t.Error(err)
	}
	answeredAt := l.peak()
	for i := range many {
		answers.Go(func() error { return c.shown(i, ids[i]) })
	}
	if err := answers.Wait(); err != nil {
		t.Error(err)
	}
	after := l.peak()
	t.Logf("the server had %d MiB at most: %d before, %d when all was written, %d when all was answered", after>>20,
		before>>20, wrote>>20, answeredAt>>20)
	if after > most {
		t.Errorf("the server had %d MiB, more than %d", after>>20, most>>20)
	}
}

// peak returns the most memory that the server has had, in bytes.
func (l *lab) peak() int64 {
	l.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.serverPID()))
	if err != nil {
		l.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		l.t.Fatal(err)
	}
	return kib << 10
}

// line is what program i writes, again and again. Some that are followed write no text.
func line(i int) []byte {
	b := fmt.Appendf(nil, "the \"output\" of program %d\tand\\more\n", i)
	if i%6 == 4 {
		b[0] = 0xff
	}
	return b
}

// digestOf returns the digest of the first n bytes of a line that repeats.
func digestOf(line []byte, n int64) string {
	h := sha256.New()
	for ; n > 0; n -= int64(len(line)) {
		h.Write(line[:min(int64(len(line)), n)])
	}
	return digest(h)
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// outputClient reads answers as they come, and keeps none.
type outputClient struct {
	t    *testing.T
	lab  *lab
	http *http.Client
}

func (c outputClient) do(method, path string, body any, header ...string) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://cove"+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if body == nil {
		r.Body, r.ContentLength = nil, 0
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return resp, err
}

func (c outputClient) program(i int) api.ExecuteRequest {
	return api.ExecuteRequest{Language: "bash", Timeout: 600,
		Code: fmt.Sprintf("yes \"$(base64 -d <<<%s)\" | head -c %d; touch /gate/%d; "+
			"until [ -e /gate/open ]; do sleep 0.2; done", base64.StdEncoding.EncodeToString(line(i)), written, i),
		Spec: api.Spec{Limits: &api.Limits{MemoryMB: 32, StdoutKB: kept >> 10},
			Mounts: []api.Mount{{Source: c.lab.in("gate"), Target: "/gate"}}}}
}

// stream follows program i from its beginning.
func (c outputClient) stream(i int, begin func(id string)) error {
	resp, err := c.do(http.MethodPost, "/execute/stream", c.program(i))
	if err != nil {
		begin("")
		return err
	}
	defer resp.Body.Close()
	begin(resp.Header.Get(api.ExecutionIDHeader))
	return c.follow(i, resp.Body, 0)
}

// resume follows a running program from a place on.
func (c outputClient) resume(id string, from int64) (io.ReadCloser, error) {
	resp, err := c.do(http.MethodGet, "/executions/"+id+"/stream", nil, "Last-Event-ID", fmt.Sprintf("%d-0", from))
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (c outputClient) follow(i int, body io.Reader, from int64) error {
	h, n := sha256.New(), from
	l := line(i)
	for skip := int64(0); skip < from; skip += int64(len(l)) {
		h.Write(l[:min(int64(len(l)), from-skip)])
	}
	r, kind := bufio.NewReaderSize(body, 1<<20), ""
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("stream %d: %d bytes, then %w", i, n, err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": ")
		switch {
		case name == "event":
			kind = value
		case name == "data" && kind == api.EventStdout:
			var o api.OutputEvent
			if err := json.Unmarshal([]byte(value), &o); err != nil {
				return err
			}
			data := []byte(o.Data)
			if o.Encoding != "" {
				if data, err = base64.StdEncoding.DecodeString(o.Data); err != nil {
					return err
				}
			}
			h.Write(data)
			n += int64(len(data))
		case name == "data" && kind == api.EventDone:
			var e api.Execution
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return err
			}
			if n != kept || digest(h) != digestOf(l, kept) || !e.Truncated || e.ExitCode != 0 {
				return fmt.Errorf("stream %d from %d: %d bytes with digest %s, %+v", i, from, n, digest(h), e)
			}
			return nil
		}
	}
}

// wait runs program i and reads its answer once every program has been answered.
func (c outputClient) wait(i int, begin func(id string), answered <-chan struct{}) error {
	resp, err := c.do(http.MethodPost, "/execute", c.program(i))
	if err != nil {
		begin("")
		return err
	}
	defer resp.Body.Close()
	begin(resp.Header.Get(api.ExecutionIDHeader))
	<-answered
	return answer(i, resp.Body, kept)
}

// shown reads the record of program i.
func (c outputClient) shown(i int, id string) error {
	resp, err := c.do(http.MethodGet, "/executions/"+id, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return answer(i, resp.Body, recorded)
}

// answer compares an execution's JSON, as it comes, with what program i has written.
func answer(i int, body io.Reader, n int64) error {
	r, size, sum := bufio.NewReaderSize(body, 1<<20), int64(0), sha256.New()
	head, err := "", error(nil)
	for err == nil && !strings.HasSuffix(head, `"output":"`) {
		var more byte
		more, err = r.ReadByte()
		head += string(more)
	}
	text, escaped := make([]byte, 0, 32<<10), [256]byte{'n': '\n', 't': '\t', '"': '"', '\\': '\\'}
	for ; err == nil; size++ {
		var b byte
		if b, err = r.ReadByte(); err != nil || b == '"' {
			break
		}
		if b == '\\' {
			b, err = r.ReadByte()
			b = escaped[b]
		}
		if text = append(text, b); len(text) == cap(text) {
			sum.Write(text)
			text = text[:0]
		}
	}
	sum.Write(text)
	if err != nil {
		return fmt.Errorf("answer %d: %d bytes, then %w", i, size, err)
	}
	rest, err := io.ReadAll(r)
	var e api.Execution
	if err == nil {
		err = json.Unmarshal([]byte(head+`"`+string(rest)), &e)
	}
	repeated := []byte(strings.ToValidUTF8(string(line(i)), "\uFFFD"))
	if err != nil || size > n || size < n-2 || digest(sum) != digestOf(repeated, size) || !e.Truncated ||
		e.ExitCode != 0 || e.Status != api.StatusCompleted {
		return fmt.Errorf("answer %d: %d bytes with digest %s, %+v, %v", i, size, digest(sum), e, err)
	}
	return nil
}
