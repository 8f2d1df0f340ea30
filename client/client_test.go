package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with handler h, and returns a client.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return connect(t, client.Options{Address: s.URL, Key: "secret"})
}

func connect(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func sse(w http.ResponseWriter, name string, v any) {
	b, _ := json.Marshal(v)
	fmt.Fprintf(w, "id: 1\nevent: %s\ndata: %s\n\n", name, b)
	w.(http.Flusher).Flush()
}

func stream(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set(api.ExecutionIDHeader, id)
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
}

func TestEachCallAsksTheRightThing(t *testing.T) {
	id := string(cove.NewExecutionID())
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Authorization")
		answer(w, 200, map[string]any{"id": id, "status": "ok", "executions": []any{},
			"runtimes": []any{map[string]any{"name": "python"}}})
	})
	ctx := t.Context()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))
	for _, tc := range []struct {
		name, want string
		do         func() error
	}{
		{"execute", "POST /execute", func() error { _, err := c.Execute(ctx, api.ExecuteRequest{}); return err }},
		{"get", "GET /executions/" + id, func() error { _, err := c.Get(ctx, id); return err }},
		{"kill", "DELETE /executions/" + id, func() error { _, err := c.Kill(ctx, id); return err }},
		{"list all", "GET /executions", func() error { _, err := c.List(ctx, client.ListOptions{}); return err }},
		{"list some", "GET /executions?cursor=a%2Bb&language=python&limit=5&since=2026-01-02T02%3A04%3A05Z&status=running",
			func() error {
				_, err := c.List(ctx, client.ListOptions{Language: "python", Status: api.StatusRunning, Since: since,
					Cursor: "a+b", Limit: 5})
				return err
			}},
		{"audit all", "GET /audit", func() error { _, err := c.Audit(ctx, client.AuditOptions{}); return err }},
		{"audit some", "GET /audit?action=execute&cursor=c&limit=5&object=" + id +
			"&since=2026-01-02T02%3A04%3A05Z&until=2026-01-02T02%3A04%3A05.5Z&verdict=deny",
			func() error {
				_, err := c.Audit(ctx, client.AuditOptions{Action: "execute", Object: id, Verdict: "deny", Since: since,
					Until: since.Add(500 * time.Millisecond), Cursor: "c", Limit: 5})
				return err
			}},
		{"verify audit", "GET /audit/verify", func() error { _, err := c.VerifyAudit(ctx); return err }},
		{"follow", "GET /executions/" + id + "/stream", func() error {
			if _, err := c.Follow(ctx, id, client.Stream{}); cove.ErrorCode(err) != cove.Unavailable { // JSON is no stream
				return fmt.Errorf("got %v", err)
			}
			return nil
		}},
		{"runtimes", "GET /runtimes", func() error {
			l, err := c.Runtimes(ctx)
			if err == nil && (len(l) != 1 || l[0].Name != "python") {
				err = fmt.Errorf("runtimes are %+v", l)
			}
			return err
		}},
		{"health", "GET /health", func() error { _, err := c.Health(ctx); return err }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.do(); err != nil {
				t.Fatal(err)
			}
			if want := tc.want + " Bearer secret"; got != want {
				t.Errorf("asked %q, want %q", got, want)
			}
		})
	}
}

func TestOnlyIDsBecomePaths(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("asked %s %s", r.Method, r.URL) })
	for _, id := range []string{"", "../health", "ex_", "ex_" + strings.Repeat("u", 26),
		string(cove.NewExecutionID()) + "/x"} {
		if _, err := c.Get(t.Context(), id); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("Get(%q): %v", id, err)
		}
		if _, err := c.Follow(t.Context(), id, client.Stream{}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("Follow(%q): %v", id, err)
		}
		if _, err := c.Kill(t.Context(), id); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("Kill(%q): %v", id, err)
		}
	}
}

func TestErrorsCarryCodeAndHint(t *testing.T) {
	for _, tc := range []struct {
		name, body    string
		status        int
		code          cove.Code
		message, hint string
	}{
		{"with a hint", `{"error":"no such image (pull it)","hint":"pull it","code":"image_missing","request_id":"r"}`, 404,
			cove.ImageMissing, "no such image", "pull it"},
		{"without", `{"error":"too fast","code":"overloaded","request_id":"r"}`, 429, cove.Overloaded, "too fast", ""},
		{"a code of the future", `{"error":"odd","code":"odd","request_id":"r"}`, 409, cove.Conflict, "odd", ""},
		{"a proxy's page", `<html>bad gateway`, 502, cove.Unavailable, "the server answered 502 Bad Gateway",
			"check that the address is a Cove server's"},
		{"a redirect", ``, 302, cove.Unavailable, "the server answered 302 Found",
			"check that the address is a Cove server's"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
			})
			_, err := c.Execute(t.Context(), api.ExecuteRequest{})
			var e *cove.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Message != tc.message || e.Hint != tc.hint {
				t.Errorf("%#v", err)
			}
		})
	}
}

// TestRetryAfter: an error says when to try again, and the client does not do so by itself.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "": 0, "-1": 0,
		"Thu, 26 Nov 2026 18:00:00 GMT": 0} {
		var asked atomic.Int32
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Retry-After", header)
			answer(w, 429, api.Error{Error: "full (try again in 7s)", Code: "overloaded", Hint: "try again in 7s"})
		})
		_, err := c.Execute(t.Context(), api.ExecuteRequest{})
		if cove.ErrorCode(err) != cove.Overloaded || cove.ErrorRetry(err) != want || asked.Load() != 1 {
			t.Errorf("%q: %v, again in %s, asked %d times", header, err, cove.ErrorRetry(err), asked.Load())
		}
	}
}

func TestAnswersThatAreNoneOfCoves(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	if _, err := c.Health(t.Context()); cove.ErrorCode(err) != cove.Unavailable || cove.ErrorHint(err) == "" {
		t.Errorf("health: %v", err)
	}
	if _, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{},
		client.Stream{}); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("stream: %v", err)
	}
}

// TestHealthOfADegradedServer: the answer has the state in its body and status.
func TestHealthOfADegradedServer(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { answer(w, 503, api.Health{Status: "degraded", PID: 7}) })
	if h, err := c.Health(t.Context()); err != nil || h.Status != "degraded" || h.PID != 7 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := c.Runtimes(t.Context()); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("another path: %v", err)
	}
}

// TestUntrustedCertificate: what can be done about it is said.
func TestUntrustedCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	c := connect(t, client.Options{Address: s.URL})
	if _, err := c.Health(t.Context()); cove.ErrorCode(err) != cove.Unavailable ||
		!strings.Contains(err.Error(), "the certificate of the server is not trusted") ||
		!strings.Contains(cove.ErrorHint(err), "SSL_CERT_FILE") {
		t.Errorf("%v", err)
	}
}

// TestWrongScheme: the other scheme is named when the server speaks TLS and the address does not, or the other way.
func TestWrongScheme(t *testing.T) {
	secure, plain := httptest.NewTLSServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	nginx := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, "<center>The plain HTTP request was sent to HTTPS port</center>")
	}))
	t.Cleanup(nginx.Close)
	for address, hint := range map[string]string{
		strings.Replace(secure.URL, "https:", "http:", 1): "write https:// in its address",
		nginx.URL: "write https:// in its address",
		strings.Replace(plain.URL, "http:", "https:", 1): "write http:// in its address",
	} {
		c := connect(t, client.Options{Address: address})
		if _, err := c.Health(t.Context()); !strings.Contains(cove.ErrorHint(err), hint) {
			t.Errorf("%s: %v (%s)", address, err, cove.ErrorHint(err))
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	c := connect(t, client.Options{Address: "unix:" + filepath.Join(t.TempDir(), "cove.sock")})
	if _, err := c.Health(t.Context()); cove.ErrorCode(err) != cove.Unavailable || cove.ErrorHint(err) == "" {
		t.Errorf("%v", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "unix:", "localhost:8080", "ftp://x", "http://"} {
		if _, err := client.New(client.Options{Address: address}); cove.ErrorCode(err) != cove.InvalidArgument ||
			cove.ErrorHint(err) == "" {
			t.Errorf("New(%q): %v", address, err)
		}
	}
}

func TestUnixSocketAndDialer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, api.Health{Status: "ok"})
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
	for name, o := range map[string]client.Options{"unix": {Address: "unix:" + path}, "dialer": {Dial: dial}} {
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := c.Health(t.Context()); err != nil || h.Status != "ok" {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		c.Close()
	}
}

func TestStream(t *testing.T) {
	id := string(cove.NewExecutionID())
	binary := "\xff\xfe\x00"
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req api.ExecuteRequest
		json.NewDecoder(r.Body).Decode(&req)
		if req.StdinStream {
			t.Error("stdin was announced although there is none")
		}
		stream(w, id)
		io.WriteString(w, ": heartbeat\n\n")
		sse(w, api.EventStdout, api.OutputEvent{Data: "out\n"})
		sse(w, api.EventStderr, api.OutputEvent{Data: "err\n"})
		sse(w, "something new", "?")
		sse(w, api.EventStdout, api.OutputEvent{Data: base64.StdEncoding.EncodeToString([]byte(binary)), Encoding: "base64"})
		sse(w, api.EventDone, api.Execution{ID: id, ExitCode: 3, Status: api.StatusCompleted})
	})
	var stdout, stderr bytes.Buffer
	var started string
	e, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{Language: "python"},
		client.Stream{Stdout: &stdout, Stderr: &stderr, Started: func(id string) { started = id }})
	if err != nil || e.ExitCode != 3 || e.ID != id || started != id {
		t.Fatalf("%+v, %v, started %q", e, err, started)
	}
	if stdout.String() != "out\n"+binary || stderr.String() != "err\n" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

func TestFollow(t *testing.T) {
	id := string(cove.NewExecutionID())
	broken := false
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, id)
		sse(w, api.EventStdout, api.OutputEvent{Data: "out\n"})
		sse(w, api.EventStderr, api.OutputEvent{Data: "err\n"})
		if !broken {
			sse(w, api.EventDone, api.Execution{ID: id, ExitCode: 3})
		}
	})
	for range 2 {
		var stdout, stderr bytes.Buffer
		started := 0
		e, err := c.Follow(t.Context(), id, client.Stream{Stdout: &stdout, Stderr: &stderr, Started: func(string) {
			started++
		}})
		if stdout.String() != "out\n" || stderr.String() != "err\n" || started != 1 {
			t.Errorf("stdout %q, stderr %q, started %d times", stdout.String(), stderr.String(), started)
		}
		if broken && (cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(cove.ErrorHint(err), "may still run")) ||
			!broken && (err != nil || e.ExitCode != 3) {
			t.Errorf("%+v, %v", e, err)
		}
		broken = true
	}
}

func TestStreamThatFails(t *testing.T) {
	id := string(cove.NewExecutionID())
	for _, tc := range []struct {
		name string
		do   func(w http.ResponseWriter)
		code cove.Code
	}{
		{"an error event", func(w http.ResponseWriter) {
			sse(w, api.EventError, api.Error{Error: "no room", Code: string(cove.StorageFull)})
		}, cove.StorageFull},
		{"broken off between events", func(w http.ResponseWriter) {
			sse(w, api.EventStdout, api.OutputEvent{Data: "x"})
		}, cove.Unavailable},
		{"broken off within an event", func(w http.ResponseWriter) {
			io.WriteString(w, "event: done\ndata: {")
		}, cove.Unavailable},
		{"malformed output", func(w http.ResponseWriter) {
			io.WriteString(w, "event: stdout\ndata: x\n\n")
		}, cove.Unavailable},
		{"malformed end", func(w http.ResponseWriter) { io.WriteString(w, "event: done\ndata: x\n\n") }, cove.Unavailable},
		{"malformed base64", func(w http.ResponseWriter) {
			sse(w, api.EventStdout, api.OutputEvent{Data: "!", Encoding: "base64"})
		}, cove.Unavailable},
		{"an unknown encoding", func(w http.ResponseWriter) {
			sse(w, api.EventStdout, api.OutputEvent{Data: "!", Encoding: "rot13"})
		}, cove.Unavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				stream(w, id)
				tc.do(w)
			})
			_, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{}, client.Stream{})
			if cove.ErrorCode(err) != tc.code {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestStreamInput: input and its end are sent as they come, and an endless input does not delay the execution's end.
func TestStreamInput(t *testing.T) {
	for _, last := range []string{"", "enough\n"} {
		echoInput(t, last)
	}
}

// echoInput executes a program that echoes its input until the line "enough". The input ends if last is empty, and
// otherwise goes on after it.
func echoInput(t *testing.T, last string) {
	t.Helper()
	id := string(cove.NewExecutionID())
	lines := make(chan string)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /executions/{id}/stdin", func(w http.ResponseWriter, r *http.Request) {
		defer close(lines)
		if r.PathValue("id") != id {
			t.Errorf("stdin for %q", r.PathValue("id"))
		}
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			if n > 0 {
				lines <- string(b[:n])
			}
			if err != nil {
				return
			}
		}
	})
	mux.HandleFunc("POST /execute/stream", func(w http.ResponseWriter, r *http.Request) {
		stream(w, id)
		for line := range lines {
			sse(w, api.EventStdout, api.OutputEvent{Data: line})
			if line == "enough\n" {
				break
			}
		}
		sse(w, api.EventDone, api.Execution{ID: id})
		for range lines {
		}
	})
	c := serve(t, mux.ServeHTTP)
	pr, pw := io.Pipe()
	defer pr.Close()
	out := make(chan string, 10)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		io.WriteString(pw, "first\n")
		if got := <-out; got != "first\n" { // before more is written: nothing is buffered
			t.Errorf("echoed %q", got)
		}
		if last == "" {
			pw.Close()
		} else {
			io.WriteString(pw, last)
		}
	})
	_, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{}, client.Stream{Stdin: pr, Stdout: writer(out)})
	if err != nil {
		t.Errorf("%v", err)
	}
}

type writer chan string

func (w writer) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestStreamEndsWithItsContext(t *testing.T) {
	gone := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, string(cove.NewExecutionID()))
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.ExecuteStream(ctx, api.ExecuteRequest{}, client.Stream{Started: func(string) { cancel() }})
	if cove.ErrorCode(err) != cove.Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-gone // the server notices
}

func TestStreamEndsWhenOutputCannotBeWritten(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, string(cove.NewExecutionID()))
		sse(w, api.EventStdout, api.OutputEvent{Data: "x"})
		<-r.Context().Done()
	})
	pr, pw := io.Pipe()
	pr.Close()
	_, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{}, client.Stream{Stdout: pw})
	if cove.ErrorCode(err) != cove.Canceled || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
