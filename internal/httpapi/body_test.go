package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// TestMalformedBodies is probe A9. Each is answered with a status and a code
// of the table, and none reaches the sandbox.
func TestMalformedBodies(t *testing.T) {
	h := start(t, nil)
	deep := strings.Repeat("[", 1_000_000)
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"nothing", "", 400, "body"},
		{"not JSON", "print(1)", 400, "not JSON"},
		{"half", `{"language":"python",`, 400, "not JSON"},
		{"two values", snippet + snippet, 400, "not JSON"},
		{"a list", "[" + snippet + "]", 400, "expected object"},
		{"null", "null", 400, "expected object"},
		{"a text", `"python"`, 400, "expected object"},
		{"unknown field", `{"language":"python","code":"x","privileged":true}`, 400, "privileged"},
		{"unknown field deep down", `{"language":"python","code":"x","limits":{"memory":1}}`, 400, "limits.memory"},
		{"another case", `{"Language":"python","code":"x"}`, 400, "Language"},
		{"a key twice", `{"language":"python","code":"x","code":"y"}`, 400, "twice"},
		{"a key twice, escaped", `{"language":"python","code":"x","\u0063ode":"y"}`, 400, "twice"},
		{"a key twice, deep down", `{"language":"python","code":"x","env":{"A":"1","A":"2"}}`, 400, "twice"},
		{"a key in two cases", `{"language":"python","code":"x","CODE":"y"}`, 400, "twice"},
		{"deep", `{"language":"python","code":` + deep + `}`, 400, "deeper"},
		{"deep and whole", `{"language":"python","code":` + strings.Repeat(`{"a":`, 200_000) + "1" +
			strings.Repeat("}", 200_000) + `}`, 400, "deeper"},
		{"byte order mark", "\ufeff" + snippet, 400, "byte order mark"},
		{"invalid UTF-8", "{\"language\":\"python\",\"code\":\"\xff\"}", 400, "UTF-8"},
		{"overlong UTF-8", "{\"language\":\"python\",\"code\":\"\xc0\xaf\"}", 400, "UTF-8"},
		{"UTF-16", "{\x00\"\x00", 400, ""},
		{"NUL", "\x00" + snippet, 400, "not JSON"},
		{"a huge number", `{"language":"python","code":"x","timeout":1e400}`, 400, "out of range"},
		{"a huge negative number", `{"language":"python","code":"x","timeout":-1e400}`, 400, "out of range"},
		{"a long number", `{"language":"python","code":"x","limits":{"memory_mb":` + strings.Repeat("9", 100_000) + `}}`, 400,
			"out of range"},
		{"NaN", `{"language":"python","code":"x","timeout":NaN}`, 400, "not JSON"},
		{"hexadecimal", `{"language":"python","code":"x","timeout":0x10}`, 400, "not JSON"},
		{"a fraction for a whole number", `{"language":"python","code":"x","limits":{"memory_mb":1.5}}`, 400,
			"limits.memory_mb"},
		{"a text for a number", `{"language":"python","code":"x","timeout":"10"}`, 400, "timeout"},
		{"a number for a text", `{"language":"python","code":5}`, 400, "code"},
		{"no code", `{"language":"python"}`, 400, "code"},
		{"no language", `{"code":"x"}`, 400, "language"},
		{"null for a text", `{"language":null,"code":"x"}`, 400, "language"},
		{"a time that is none", `{"language":"python","code":"x","timeout":1e-300}`, 400, "timeout"},
		{"null in a map", `{"language":"python","code":"x","env":{"A":null}}`, 400, "env"},
		{"a comment", "// x\n" + snippet, 400, "not JSON"},
		{"a trailing comma", `{"language":"python","code":"x",}`, 400, "not JSON"},
		{"single quotes", `{'language':'python'}`, 400, "not JSON"},
		{"unknown encoding", `{"language":"python","code":"x","files":[{"path":"a","content":"","encoding":"gzip"}]}`,
			400, "encoding"},
		{"not base64", `{"language":"python","code":"x","files":[{"path":"a","content":"@","encoding":"base64"}]}`,
			400, "base64"},
		{"a file twice", `{"language":"python","code":"x","files":[{"path":"a","content":""},{"path":"a","content":""}]}`,
			400, "twice"},
		{"a setuid file", `{"language":"python","code":"x","files":[{"path":"a","content":"","mode":2541}]}`, 400,
			"permission bits"},
		{"a negative mode", `{"language":"python","code":"x","files":[{"path":"a","content":"","mode":-1}]}`, 400, "mode"},
		{"a network to nothing", `{"language":"python","code":"x","permissions":{"network":{"enabled":true}}}`, 400, "allow"},
		{"a network that is not on",
			`{"language":"python","code":"x","permissions":{"network":{"enabled":false,"allow":["example.com"]}}}`,
			400, "enabled"},
		{"a network of an unknown kind",
			`{"language":"python","code":"x","permissions":{"network":{"enabled":true,"mode":"wide"}}}`, 400, "mode"},
		{"a host that is none",
			`{"language":"python","code":"x","permissions":{"network":{"enabled":true,"allow":["exa mple.com"]}}}`, 400,
			"exa mple.com"},
		{"a policy that is none",
			`{"language":"python","code":"x","permissions":{"network":{"enabled":true,"policies":[{"source":"p.yaml","text":"rulez: []"}]}}}`, 400, "p.yaml:1"},
		{"an image that is an option", `{"language":"python","code":"x","image":"--privileged"}`, 400, "image"},
		{"an image with a newline", `{"language":"python","code":"x","image":"a\nb"}`, 400, "image"},
		{"much stdin", `{"language":"python","code":"x","stdin":"` + strings.Repeat("x", maxStdin+1) + `"}`, 413, "stdin"},
		{"too large", `{"language":"python","code":"` + strings.Repeat("x", maxBody) + `"}`, 413, "larger than 32 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			begun := time.Now()
			r := h.post("/execute", c.body, "Content-Type", "application/json")
			if r.StatusCode != c.status {
				t.Errorf("status %d, want %d: %.300s", r.StatusCode, c.status, r.body)
			}
			if e := r.error(t); !strings.Contains(e.Error, c.says) || len(e.Error) > 1000 {
				t.Errorf("%.300q does not say %q, or too much", e.Error, c.says)
			}
			if d := time.Since(begun); d > 5*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
	if q := h.fake.request(); q.Language != "" {
		t.Errorf("the sandbox was asked for %+v", q)
	}
}

// TestNumbersAtTheEdge: units do not overflow into something small.
func TestNumbersAtTheEdge(t *testing.T) {
	h := start(t, nil)
	for _, c := range []struct {
		body  string
		check func(cove.Limits) bool
	}{
		{`"limits":{"memory_mb":9223372036854775807,"disk_mb":17592186044416,"stdout_kb":9007199254740993}`,
			func(l cove.Limits) bool {
				return l.Memory > 1<<62 && l.Disk > 1<<62 && l.Stdout > 1<<62
			}},
		{`"limits":{"memory_mb":-9223372036854775808,"pids_limit":-1,"cpus":-0.5}`,
			func(l cove.Limits) bool { return l.Memory < 0 && l.PIDs == -1 && l.CPUs == -.5 }},
		{`"timeout":1e300`, func(l cove.Limits) bool { return l.Timeout > 1<<62 }},
		{`"timeout":-1e300`, func(l cove.Limits) bool { return l.Timeout < -1<<62 }},
		{`"timeout":-0`, func(l cove.Limits) bool { return l.Timeout == 0 }},
		{`"timeout":-5`, func(l cove.Limits) bool { return l.Timeout == -5*time.Second }},
		{`"timeout":1e1`, func(l cove.Limits) bool { return l.Timeout == 10*time.Second }},
		{`"limits":null,"env":null,"files":null,"args":null,"permissions":{"network":{"enabled":false}}`,
			func(l cove.Limits) bool { return l == cove.Limits{} }},
	} {
		r := h.post("/execute", `{"language":"python","code":"x",`+c.body+`}`)
		if l := h.fake.request().Limits; r.StatusCode != 200 || !c.check(l) {
			t.Errorf("%s: status %d, limits %+v", c.body, r.StatusCode, l)
		}
	}
}

func TestEncodedBodies(t *testing.T) {
	h := start(t, nil)
	if r := h.post("/execute", snippet, "Content-Encoding", "gzip"); r.StatusCode != 415 {
		t.Errorf("gzip: status %d", r.StatusCode)
	}
	if r := h.do(h.client, "POST", "/execute", "", "Content-Type",
		"application/json; charset=utf-8"); r.StatusCode != 400 {
		t.Errorf("nothing: status %d", r.StatusCode)
	}
}

// TestChunkedBodiesAreBounded sends more than is taken without saying so first.
func TestChunkedBodiesAreBounded(t *testing.T) {
	h := start(t, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	req, _ := http.NewRequest("POST", h.url+"/execute",
		io.MultiReader(strings.NewReader(`{"code":"`), io.LimitReader(endless{}, 200<<20)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("status %d", resp.StatusCode)
		}
	} else {
		t.Logf("the server hung up: %v", err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("%d MiB are still in use", grown>>20)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestBodiesTogetherAreBounded: what is being executed counts, so that many large requests of a caller at once get an
// early answer instead of all the memory, whether they tell their length or not. The text counts until it is read.
func TestBodiesTogetherAreBounded(t *testing.T) {
	h := start(t, func(o *Options) { o.MaxBodies = 2 << 20 }) // 896 KiB for one caller
	release, begun := make(chan struct{}), make(chan struct{}, 10)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		begun <- struct{}{}
		<-release
		return finished(id), nil
	}
	size := 330 << 10
	large := `{"language":"python","code":"` + strings.Repeat("x", size) + `"}`
	chunked := func() reply {
		return h.send(h.client, "POST", "/execute", io.MultiReader(strings.NewReader(large)), "Content-Type",
			"application/json")
	}
	var wg sync.WaitGroup
	wg.Go(func() { decode[api.Execution](t, h.post("/execute", large), 200) })
	<-begun
	if n := h.s.bodies.Taken(); n != int64(len(large)) {
		t.Errorf("%d bytes are counted of a body with %d that was read", n, len(large))
	}
	for _, r := range []reply{h.post("/execute", large), chunked()} {
		if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || r.error(t).Code != string(cove.Overloaded) {
			t.Errorf("status %d, headers %v: %s", r.StatusCode, r.Header, r.body)
		}
	}
	wg.Go(func() { decode[api.Execution](t, h.post("/execute", snippet), 200) }) // a small one has room
	<-begun
	wg.Go(func() { // as the owner's has
		decode[api.Execution](t, h.do(h.owner, "POST", "/execute", large), 200)
	})
	<-begun
	close(release)
	wg.Wait()
	for range 3 { // nothing leaked
		decode[api.Execution](t, h.post("/execute", large), 200)
		decode[api.Execution](t, chunked(), 200)
	}
	if n := h.s.bodies.Taken(); n != 0 {
		t.Errorf("%d bytes are counted without a request", n)
	}
}

// TestSlowBodies is R-U-Dead-Yet: a body that comes byte by byte is given up.
func TestSlowBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real timers; make test runs it")
	}
	h := start(t, func(o *Options) { o.ReadTimeout = 300 * time.Millisecond })
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		}
	}()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, _ := io.ReadAll(conn)
	if !bytes.HasPrefix(b, []byte("HTTP/1.1 408 ")) || !bytes.Contains(b, []byte(`"code":"canceled"`)) {
		t.Errorf("got %q", b)
	}
}

// TestSlowHeaders is slowloris in small: connections that never finish their
// headers are closed, and do not keep others from an answer (probe A10).
func TestSlowHeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for real timers; make test runs it")
	}
	h := start(t, func(o *Options) { o.HeaderTimeout = time.Second })
	var conns []net.Conn
	for range 300 {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /execute HTTP/1.1\r\nHost: localhost\r\nX-A: b")
		conns = append(conns, conn)
	}
	for range 5 {
		begun := time.Now()
		if r := h.get("/health"); r.StatusCode != 200 {
			t.Errorf("status %d", r.StatusCode)
		}
		if d := time.Since(begun); d > time.Second {
			t.Errorf("health took %v", d)
		}
	}
	for i, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatalf("connection %d was not closed: %v", i, err)
		}
	}
}

func TestHugeHeaders(t *testing.T) {
	h := start(t, nil)
	req, _ := http.NewRequest("GET", h.url+"/health", nil)
	req.Header.Set("X-Long", strings.Repeat("x", 1<<20))
	resp, err := h.client.Do(req)
	if err != nil {
		t.Logf("the server hung up: %v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != 431 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestSmuggling: what proxies and servers read differently is not read at all.
func TestSmuggling(t *testing.T) {
	h := start(t, nil)
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(snippet), snippet)
	for name, head := range map[string]string{
		"two lengths":           "Content-Length: 5\r\nContent-Length: 6\r\n",
		"a negative length":     "Content-Length: -1\r\n",
		"a signed length":       "Content-Length: +5\r\n",
		"an unknown encoding":   "Transfer-Encoding: gzip\r\n",
		"two encodings":         "Transfer-Encoding: gzip, chunked\r\n",
		"a space before colon":  "Transfer-Encoding : chunked\r\n",
		"a bare CR in a header": "X-A: b\rc\r\nContent-Length: 5\r\n",
		"no host":               "",
	} {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		host := "Host: localhost\r\n"
		if name == "no host" {
			host = ""
		}
		fmt.Fprintf(conn, "POST /execute HTTP/1.1\r\n%sContent-Type: application/json\r\nConnection: close\r\n%s\r\n%s",
			host, head, chunk)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		b, _ := io.ReadAll(conn)
		conn.Close()
		if !bytes.HasPrefix(b, []byte("HTTP/1.1 400 ")) && !bytes.HasPrefix(b, []byte("HTTP/1.1 501 ")) {
			t.Errorf("%s: got %.200q", name, b)
		}
	}
	if q := h.fake.request(); q.Language != "" {
		t.Errorf("something was executed: %+v", q)
	}
}

func FuzzCheckJSON(f *testing.F) {
	f.Add([]byte(snippet))
	f.Add([]byte(`{"a":{"b":[1,{"a":"\"x"}]},"A":2}`))
	f.Add([]byte(`["a","a"]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkJSON(data) != nil {
			return
		}
		var v any
		if err := strictJSON.Unmarshal(data, &v); err != nil && !strings.Contains(err.Error(), "out of range") {
			t.Errorf("%q passes and is then not read: %v", data, err)
		}
	})
}

// TestEveryBodyIsBounded is made from the document of the API, so that a new
// route that takes JSON is bounded unless it is named here.
func TestEveryBodyIsBounded(t *testing.T) {
	h := start(t, nil)
	bodies := 0
	for path, item := range h.s.all().api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"POST": item.Post, "PUT": item.Put, "PATCH": item.Patch,
			"DELETE": item.Delete, "GET": item.Get} {
			if op == nil || op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
				continue
			}
			if bodies++; !jsonRoutes[method+" "+path] {
				t.Errorf("%s %s takes a body without bounds: it is none of jsonRoutes", method, path)
			}
		}
	}
	if bodies < 10 {
		t.Errorf("only %d routes take a body", bodies)
	}
}
