package httpapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// overTLS is a harness over TLS, whose client speaks HTTP/2.
func overTLS(t *testing.T, change func(*Options)) *harness {
	t.Helper()
	made := httptest.NewUnstartedServer(nil) // for its certificate
	made.StartTLS()
	defer made.Close()
	h := start(t, func(o *Options) {
		o.TLS = &tls.Config{Certificates: made.TLS.Certificates, MinVersion: tls.VersionTLS12}
		if change != nil {
			change(o)
		}
	})
	pool := x509.NewCertPool()
	pool.AddCert(made.Certificate())
	transport := h.client.Transport.(*http.Transport)
	transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{RootCAs: pool}, true
	h.url = "https://" + h.address
	return h
}

// TestHTTP2: over HTTP/2 the events of an execution come one by one, the end of a stream ends its execution, and
// places and sizes are bounded as over HTTP/1.
func TestHTTP2(t *testing.T) {
	next, ended := make(chan struct{}), make(chan struct{})
	h := overTLS(t, func(o *Options) { o.MaxRequests = 4 })
	h.fake.do = func(ctx context.Context, _ execution.Request, started func(cove.ExecutionID),
		out process.Output) (execution.Result, error) {
		defer close(ended)
		id := cove.NewExecutionID()
		started(id)
		for range 2 {
			select {
			case <-next:
				out.Stdout([]byte("step"))
			case <-ctx.Done():
			}
		}
		<-ctx.Done()
		return finished(id), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/execute/stream", strings.NewReader(snippet))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK || res.Header.Get(api.ExecutionIDHeader) == "" {
		t.Fatalf("HTTP/%d %s %v", res.ProtoMajor, res.Status, res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	for range 2 {
		next <- struct{}{}
		for lines.Scan() && lines.Text() != `data: {"data":"step"}` {
		}
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
	}
	large := `{"language":"python","code":"` + strings.Repeat("x", maxBody) + `"}`
	if r := h.post("/execute", large); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %s", r.Status)
	}
	h.s.places.Take(caller, 1) // the stream has the other one of its share
	if r := h.get("/executions"); r.StatusCode != http.StatusServiceUnavailable || r.ProtoMajor != 2 {
		t.Errorf("without a place: HTTP/%d %s", r.ProtoMajor, r.Status)
	}
	h.s.places.Give(caller, 1)
	cancel()
	<-ended
}

// TestUpgradeBesideHTTP2: a WebSocket client of a server that offers HTTP/2 speaks HTTP/1.1 to it, and passes as far as
// the terminal. Over HTTP/2 an upgrade is refused as one.
func TestUpgradeBesideHTTP2(t *testing.T) {
	f := &fakeProcesses{}
	h := overTLS(t, func(o *Options) { o.Processes = f })
	_, res, err := websocket.Dial(t.Context(), h.url+"/sandboxes/box/terminal?id=1",
		&websocket.DialOptions{HTTPClient: h.client})
	if err == nil || res == nil || res.StatusCode != http.StatusNotFound || res.ProtoMajor != 1 || len(f.opened) != 1 {
		t.Errorf("%v: %+v; %d terminals were asked for", err, res, len(f.opened))
	}
	if r := h.get("/sandboxes/box/terminal?id=1"); r.ProtoMajor != 2 || r.StatusCode != http.StatusBadRequest {
		t.Errorf("over HTTP/%d: %s", r.ProtoMajor, r.Status)
	}
}

// TestOptionsOfServer: OPTIONS * is a request like others.
func TestOptionsOfServer(t *testing.T) {
	h := start(t, withKeys)
	for key, status := range map[string]int{"": http.StatusUnauthorized, "cove_right": http.StatusNotFound} {
		r, err := http.NewRequest(http.MethodOptions, h.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque = "*"
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		res, err := h.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status || res.Header.Get("X-Request-Id") == "" {
			t.Errorf("with the key %q: %s %v", key, res.Status, res.Header)
		}
	}
}

// TestDocumentOfErrors: the description lists each code, and each status of a route's errors.
func TestDocumentOfErrors(t *testing.T) {
	h := start(t, nil)
	if _, ok := h.doc.Paths["/sandboxes/{sandbox}/exec"]["post"].Responses["422"]; !ok {
		t.Error("a command that is not there is not documented")
	}
	text := h.get("/openapi.json").body
	var last int
	for _, c := range cove.Codes {
		at := strings.Index(text[last:], `"`+string(c)+`"`)
		if at < 0 {
			t.Fatalf("the enum of codes has no %s, or not in its place", c)
		}
		last += at
	}
}
