package httpapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/await"
)

func key(name, secret string) Key {
	sum := sha256.Sum256([]byte(secret))
	return Key{Name: name, Hash: hex.EncodeToString(sum[:])}
}

func withKeys(o *Options) { o.Keys = []Key{key("ci", "cove_right"), key("dev", "cove_other")} }

const someID = "ex_0123456789abcdefghjkmnpqrs"

// target is a request for a route of the table.
func target(route string) (method, path, body string) {
	method, path, _ = strings.Cut(route, " ")
	path = strings.ReplaceAll(path, "{id}", someID)
	if jsonRoutes[route] {
		body = snippet
	}
	return method, path, body
}

// TestEveryRouteNeedsAKey is made from the router, so that a new route is
// closed unless it is named here (invariant A1, probe A1).
func TestEveryRouteNeedsAKey(t *testing.T) {
	h := start(t, withKeys)
	h.store.fail(cove.Errorf(cove.StorageFull, "no space")) // streams without an end have one
	for _, route := range []string{"POST /execute", "POST /sandboxes", "POST /repositories",
		"GET /sandboxes/{sandbox}/diff", "POST /runs", "GET /runs/{run}/export", "POST /agents/{agent}/install",
		"GET /profiles", "GET /metrics"} {
		if !slices.Contains(h.s.Routes(), route) {
			t.Errorf("%s is not there: the table is not whole", route)
		}
	}
	wrong := map[string][]string{
		"nothing":               nil,
		"a wrong key":           {"X-API-Key", "cove_wrong"},
		"an empty key":          {"X-API-Key", ""},
		"a wrong bearer":        {"Authorization", "Bearer cove_wrong"},
		"an empty bearer":       {"Authorization", "Bearer "},
		"no scheme":             {"Authorization", "cove_right"},
		"another scheme":        {"Authorization", "Basic cove_right"},
		"the hash":              {"X-API-Key", key("", "cove_right").Hash},
		"the name":              {"X-API-Key", "ci"},
		"more after it":         {"X-API-Key", "cove_right2"},
		"less of it":            {"X-API-Key", "cove_righ"},
		"another case":          {"X-API-Key", "COVE_RIGHT"},
		"two headers":           {"Authorization", "Bearer cove_right", "Authorization", "Bearer cove_right"},
		"one right, one wrong":  {"X-API-Key", "cove_right", "Authorization", "Bearer cove_wrong"},
		"two keys in one":       {"X-API-Key", "cove_right, cove_other"},
		"a cookie":              {"Cookie", "X-API-Key=cove_right"},
		"a forwarded identity":  {"X-Forwarded-For", "127.0.0.1", "X-Real-Ip", "127.0.0.1", "Forwarded", "for=127.0.0.1"},
		"a claim to be local":   {"X-Forwarded-Proto", "unix", "X-Cove-Local", "1"},
		"another method's name": {"X-HTTP-Method-Override", "GET"},
	}
	for _, route := range h.s.Routes() {
		if strings.HasPrefix(route, "GET /docs") {
			continue // the page that asks for the key; TestDocsPage has it
		}
		method, path, body := target(route)
		for name, header := range wrong {
			r := h.do(h.client, method, path, body, header...)
			if route == "GET /health" {
				// The store fails, which is all that a stranger learns.
				if r.StatusCode != 503 || strings.TrimSpace(r.body) != `{"status":"degraded"}` {
					t.Errorf("%s with %s: %d %s", route, name, r.StatusCode, r.body)
				}
				continue
			}
			if r.StatusCode != 401 || r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %s: status %d", route, name, r.StatusCode)
			}
			if e := r.error(t); e.Code != string(cove.Unauthenticated) {
				t.Errorf("%s with %s: code %s", route, name, e.Code)
			}
		}
		if r := h.do(h.client, method, path+"?api_key=cove_right&key=cove_right", body); route != "GET /health" &&
			r.StatusCode != 401 {
			t.Errorf("%s with the key in the query: status %d", route, r.StatusCode)
		}
		for _, header := range [][]string{{"X-API-Key", "cove_right"}, {"Authorization", "Bearer cove_other"},
			{"Authorization", "bearer cove_right"}} {
			if r := h.do(h.client, method, path, body, header...); r.StatusCode == 401 || r.StatusCode == 403 &&
				!ofOwner(route) {
				t.Errorf("%s with %v: status %d", route, header, r.StatusCode)
			}
		}
		if r := h.do(h.owner, method, path, body); r.StatusCode == 401 || r.StatusCode == 403 {
			t.Errorf("%s for the owner: status %d", route, r.StatusCode)
		}
	}
}

// ofOwner reports whether a route is closed to keys with the usual scopes, too.
func ofOwner(route string) bool {
	return access.Routes.Check(access.Caller{Who: cove.KeyHolder("ci"), Known: true, Scopes: access.Usual}, route) != nil
}

// TestUnknownPathsTellStrangersNothing: what exists and what does not is the same to who has no key (probe A3).
func TestUnknownPathsTellStrangersNothing(t *testing.T) {
	h := start(t, withKeys)
	for _, path := range []string{"/", "/nothing", "/debug/pprof/", "/debug/vars", "/executions/", "/executions//",
		"/execute/", "/executions/../health",
		"/executions/%2e%2e/metrics", "/health/../metrics", "//metrics", "/metrics/", "/./metrics",
		"/executions/" + someID + "/", "/executions/a%2fb", "/executions/..;/metrics"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECTX"} {
			r := h.do(h.client, method, path, "")
			if r.StatusCode != 401 {
				t.Errorf("%s %s: status %d", method, path, r.StatusCode)
			}
		}
	}
}

func TestVerbsAndPathsWithAKey(t *testing.T) {
	h := start(t, withKeys)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/nothing", 404, ""}, {"GET", "/", 404, ""}, {"GET", "/debug/pprof/", 404, ""}, {"GET", "/metrics/", 404, ""},
		{"GET", "//metrics", 404, ""},
		{"GET", "/executions/../metrics", 404, ""}, {"GET", "/executions/" + someID + "/", 404, ""},
		{"GET", "/execute", 405, "POST"}, {"PUT", "/execute", 405, "POST"}, {"POST", "/executions", 405, "GET"},
		{"PATCH", "/executions/" + someID, 405, "GET, DELETE"},
		{"OPTIONS", "/execute", 405, "POST"}, {"TRACE", "/health", 405, "GET"}, {"POST", "/health", 405, "GET"},
		{"HEAD", "/health", 200, ""},
		{"GET", "/executions/a%2fb", 404, ""}, {"GET", "/executions/..%2f..%2fetc", 404, ""},
		{"GET", "/executions/%00", 404, ""}, {"GET", "/executions/ex_short", 404, ""},
		{"GET", "/executions/" + strings.ToUpper(someID), 404, ""}, {"GET", "/executions/" + someID + "%20", 404, ""},
		{"DELETE", "/executions/*", 404, ""},
		{"POST", "/executions/x/stdin", 404, ""},
	} {
		r := h.do(h.client, c.method, c.path, "", "X-API-Key", "cove_right", "X-HTTP-Method-Override", "DELETE")
		if r.StatusCode != c.status || r.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: status %d, Allow %q, want %d, %q", c.method, c.path, r.StatusCode, r.Header.Get("Allow"),
				c.status, c.allow)
		}
		if c.status >= 400 {
			r.error(t)
		}
		if r.Header.Get("Location") != "" || r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s: headers %v", c.method, c.path, r.Header)
		}
	}
	if len(h.fake.killed) != 0 {
		t.Errorf("killed %v", h.fake.killed)
	}
}

func TestRefusalsAreAudited(t *testing.T) {
	h := start(t, withKeys)
	h.get("/executions")
	h.get("/metrics", "Host", "evil.example")
	r := h.store.audited()
	if len(r) != 2 || r[0].Who != "ip:127.0.0.1" || r[0].Verdict != "deny" || r[0].Object != "GET /executions" ||
		r[1].Object != "GET /metrics" || !strings.Contains(r[1].Detail, "evil.example") {
		t.Errorf("records %+v", r)
	}
	// Strangers cannot fill the disk.
	for range 500 {
		h.get("/executions")
	}
	if n := len(h.store.audited()); n > 40 {
		t.Errorf("%d records", n)
	}
	for _, r := range h.store.audited() {
		if strings.Contains(fmt.Sprint(r), "cove_right") {
			t.Errorf("a record shows a key: %+v", r)
		}
	}
}

func TestKeysAreNeverLogged(t *testing.T) {
	h := start(t, withKeys)
	h.post("/execute", snippet, "X-API-Key", "cove_right")
	h.post("/execute", snippet, "Authorization", "Bearer cove_almost")
	if log := h.log.String(); strings.Contains(log, "cove_right") || strings.Contains(log, "cove_almost") ||
		!strings.Contains(log, `"client":"key:ci"`) {
		t.Errorf("the log is %s", log)
	}
	if h.fake.who != cove.KeyHolder("ci") {
		t.Errorf("client %q", h.fake.who)
	}
}

func TestMalformedHash(t *testing.T) {
	for _, hash := range []string{"", "xyz", "abcd", strings.Repeat("g", 64)} {
		h := Options{Executor: &fakeExecutor{}, Store: store.NewVault(&fakeStore{}),
			CheckPath: func(string, []string) (string, error) { return "", nil }, Keys: []Key{{Name: "ci", Hash: hash}}}
		if _, err := New(h); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%q: %v", hash, err)
		}
	}
}

// TestLocalUserIsFound: where no key is needed, a caller over loopback is the user of its socket, found once for a
// connection. A caller whose user cannot be found is refused, with the reason.
func TestLocalUserIsFound(t *testing.T) {
	h := start(t, nil)
	for range 2 {
		if r := h.post("/execute", snippet); r.StatusCode != 200 || h.fake.who != caller {
			t.Errorf("status %d, as %q", r.StatusCode, h.fake.who)
		}
	}
	for name, at := range map[string]any{"no connection": nil, "one within this process": &localUser{c: pipe(t)}} {
		ctx := context.WithValue(t.Context(), doorKey{}, fromLoopback)
		if at != nil {
			ctx = context.WithValue(ctx, localUserKey{}, at)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, "GET", "/executions", nil)
		r.Host = "localhost"
		h.s.ServeHTTP(w, r)
		if w.Code != 401 || !strings.Contains(w.Body.String(), "cannot be told") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestResetConnectionHasNoUser: what a client has sent before it reset its connection is not done in the name of the
// next client with its port, which may be another user's.
func TestResetConnectionHasNoUser(t *testing.T) {
	ran := make(chan string, 2)
	h := start(t, nil)
	h.fake.do = func(_ context.Context, r execution.Request, _ func(cove.ExecutionID), _ process.Output) (execution.Result,
		error) {
		ran <- string(r.Code)
		return execution.Result{}, nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	send := func(from *net.TCPAddr, code string) *net.TCPConn {
		t.Helper()
		var c *net.TCPConn
		await.That(t, "the port is free", func() bool {
			c, err = net.DialTCP("tcp", from, ln.Addr().(*net.TCPAddr))
			return !errors.Is(err, syscall.EADDRINUSE)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		body := fmt.Sprintf(`{"language":"python","code":%q}`, code)
		fmt.Fprintf(c, "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(body), body)
		return c
	}
	first := send(nil, "first")
	port := first.LocalAddr().(*net.TCPAddr)
	first.SetLinger(0)
	first.Close()
	second := send(port, "second")
	go h.s.Serve(ln) // both wait to be accepted
	if answer, err := http.ReadResponse(bufio.NewReader(second), nil); err != nil || answer.StatusCode != 200 {
		t.Errorf("the second client: %+v, %v", answer, err)
	}
	await.That(t, "the first client's request ends", func() bool {
		return len(ran) == 2 || strings.Contains(h.log.String(), "is not known")
	})
	if code := <-ran; code != "second" || len(ran) > 0 {
		t.Errorf("ran %s, and %d more", code, len(ran))
	}
}

func pipe(t *testing.T) net.Conn {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	return here
}

func TestAnOpenListenerIsRefused(t *testing.T) {
	h := start(t, nil)
	keyed := start(t, withKeys)
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("cannot listen on %s here: %v", address, err)
			continue
		}
		if err := keyed.s.CheckListener(ln); err != nil {
			t.Errorf("%s with keys: %v", address, err)
		}
		err = h.s.Serve(ln)
		if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "without API keys") ||
			!strings.Contains(err.Error(), "cove config new-key") {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := ln.Accept(); err == nil {
			t.Errorf("%s is still open", address)
		}
	}
	h.get("/health") // is served, so what Serve says at its beginning has been said
	if !strings.Contains(h.log.String(), "no API keys") {
		t.Error("no warning that anybody here can run code")
	}
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := h.s.CheckListener(ln); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a unix socket for others: %v", err)
	}
}

// TestWebPagesAreKeptOut is probe A11: a browser on this machine is a stranger.
func TestWebPagesAreKeptOut(t *testing.T) {
	h := start(t, func(o *Options) { o.AllowedHosts = []string{"cove.internal"} })
	_, port, _ := net.SplitHostPort(h.address)
	for _, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"the address", nil, 200},
		{"localhost", []string{"Host", "localhost:" + port}, 200},
		{"LOCALHOST without a port", []string{"Host", "LOCALHOST"}, 200},
		{"IPv6 loopback", []string{"Host", "[::1]:" + port}, 200},
		{"an allowed host", []string{"Host", "cove.internal:" + port}, 200},
		{"a rebound name", []string{"Host", "evil.lab"}, 403},
		{"a rebound name with the port", []string{"Host", "evil.lab:" + port}, 403},
		{"a name that begins right", []string{"Host", "localhost.evil.lab"}, 403},
		{"a name that ends right", []string{"Host", "evil-localhost"}, 403},
		{"a name in an allowed one", []string{"Host", "x.cove.internal"}, 403},
		{"an address elsewhere", []string{"Host", "10.0.0.1:" + port}, 403},
		{"no address", []string{"Host", "0.0.0.0:" + port}, 403},
		{"a decimal address", []string{"Host", "2130706433"}, 403},
		{"its own origin", []string{"Origin", "http://127.0.0.1:" + port}, 200},
		{"another origin", []string{"Origin", "https://evil.lab"}, 403},
		{"another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"another scheme", []string{"Origin", "https://127.0.0.1:" + port}, 403},
		{"localhost for the address", []string{"Origin", "http://localhost:" + port}, 403},
		{"a sandboxed frame", []string{"Origin", "null"}, 403},
		{"an empty origin", []string{"Origin", ""}, 403},
		{"two origins", []string{"Origin", "http://127.0.0.1:" + port, "Origin", "http://evil.lab"}, 403},
		{"a form", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"a script", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"a sibling site", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"its own page", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"the address bar", []string{"Sec-Fetch-Site", "none"}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := h.post("/execute", snippet, c.header...)
			if r.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", r.StatusCode, c.status, r.body)
			}
			if r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("the answer can be read across origins")
			}
		})
	}
	if r := h.get("/docs", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document"); r.StatusCode != 200 {
		t.Errorf("a link to the documentation: status %d", r.StatusCode)
	}
	// A page can send text/plain, forms and no type at all without asking first.
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
		"application/jsonx", "application/json, text/plain"} {
		req, _ := http.NewRequest("POST", h.url+"/execute", strings.NewReader(snippet))
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 415 {
			t.Errorf("type %q: status %d", kind, resp.StatusCode)
		}
	}
	// The owner's door has no browser behind it.
	if r := h.do(h.owner, "POST", "/execute", snippet, "Host", "anything", "Origin",
		"http://anything"); r.StatusCode != 200 {
		t.Errorf("owner: status %d", r.StatusCode)
	}
}

func TestSecurityHeaders(t *testing.T) {
	h := start(t, nil)
	for _, path := range []string{"/health", "/nothing", "/executions?limit=x", "/openapi.json", "/metrics"} {
		r := h.get(path)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin"} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "default-src 'none'") || r.Header.Get("Server") != "" {
			t.Errorf("%s: headers %v", path, r.Header)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	h := start(t, nil)
	if id := h.get("/health", "X-Request-Id", "trace-1.2_3").Header.Get("X-Request-Id"); id != "trace-1.2_3" {
		t.Errorf("a caller's id became %q", id)
	}
	for _, bad := range []string{"a b", "x\"y", strings.Repeat("a", 65), "é", "<script>"} {
		if id := h.get("/health", "X-Request-Id", bad).Header.Get("X-Request-Id"); !strings.HasPrefix(id, "rq_") {
			t.Errorf("%q became %q", bad, id)
		}
	}
	a, b := h.get("/health").Header.Get("X-Request-Id"), h.get("/health").Header.Get("X-Request-Id")
	if a == b || len(a) < 20 {
		t.Errorf("ids %q and %q", a, b)
	}
}

func TestHealth(t *testing.T) {
	h := start(t, nil)
	v := decode[api.Health](t, h.get("/health"), 200)
	if v.Status != "ok" || v.Version != "test" || v.Engines["docker"] != "not installed" || v.PID != os.Getpid() ||
		v.Since == nil || !slices.Equal(v.Listens, []string{h.url}) {
		t.Errorf("%+v", v)
	}
	h.fake.health = map[string]string{"native": "not used yet"}
	if v := decode[api.Health](t, h.get("/health"), 200); v.Status != "ok" {
		t.Errorf("an engine nobody has used: %+v", v)
	}
	h.fake.health = map[string]string{"native": "no user namespaces"}
	if v := decode[api.Health](t, h.get("/health"), 503); v.Status != "degraded" {
		t.Errorf("no engine: %+v", v)
	}
	h.fake.health = map[string]string{"native": "no user namespaces", "docker": "not used yet"}
	if v := decode[api.Health](t, h.get("/health"), 503); v.Status != "degraded" {
		t.Errorf("none but an engine nobody has used: %+v", v)
	}
}

// TestHealthOfTheStore: a server whose database cannot be read is not ready.
func TestHealthOfTheStore(t *testing.T) {
	h := start(t, nil)
	if v := decode[api.Health](t, h.get("/health"), 200); v.Store != "ok" {
		t.Errorf("%+v", v)
	}
	h.store.broken = cove.Errorf(cove.StorageFull, "the disk is full")
	if v := decode[api.Health](t, h.get("/health"), 503); v.Status != "degraded" || !strings.Contains(v.Store, "full") {
		t.Errorf("%+v", v)
	}
	h.store.broken = nil
	h.store.fail(cove.Errorf(cove.Corrupt, "the database is malformed"))
	if v := decode[api.Health](t, h.get("/health"), 503); v.Status != "degraded" ||
		!strings.Contains(v.Store, "malformed") {
		t.Errorf("%+v", v)
	}
}

// TestOpenMetrics: metrics are for callers with a key unless they are configured to be open, and nothing else opens
// with them.
func TestOpenMetrics(t *testing.T) {
	for _, open := range []bool{false, true} {
		h := start(t, func(o *Options) { o.Keys, o.OpenMetrics = []Key{key("right", "cove_right")}, open })
		want := map[string]int{"/metrics": 401, "/executions": 401, "/openapi.json": 401, "/health": 200}
		if open {
			want["/metrics"] = 200
		}
		for path, status := range want {
			if r := h.get(path); r.StatusCode != status {
				t.Errorf("open %v: %s: %d, want %d", open, path, r.StatusCode, status)
			}
		}
	}
}

// TestMetricsOfAKey: what all callers do together is counted for keys that name the scope, and for no other key.
func TestMetricsOfAKey(t *testing.T) {
	h := start(t, func(o *Options) {
		o.Keys = []Key{key("reader", "cove_reader"), key("prometheus", "cove_prometheus"), key("plain", "cove_plain")}
		o.Grants = access.Grants{cove.KeyHolder("reader"): {Scopes: []access.Scope{access.Read}},
			cove.KeyHolder("prometheus"): {Scopes: []access.Scope{access.Metrics}}}
	})
	h.fake.active = 3
	for name, want := range map[string]int{"reader": 403, "plain": 403, "prometheus": 200} {
		r := h.get("/metrics", "X-API-Key", "cove_"+name)
		if r.StatusCode != want || strings.Contains(r.body, "sandbox_active_executions 3") != (want == 200) {
			t.Errorf("metrics of %s: %d %s", name, r.StatusCode, r.body)
		}
		if want == 403 && !strings.Contains(r.body, "scope metrics or admin") {
			t.Errorf("what %s lacks is not said: %s", name, r.body)
		}
		health := h.get("/health", "X-API-Key", "cove_"+name)
		if health.StatusCode != 200 || strings.Contains(health.body, `"active":3`) != (want == 200) {
			t.Errorf("health of %s: %d %s", name, health.StatusCode, health.body)
		}
	}
}

func TestAddressGroup(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":         "fe80::/64", "[::1]:5": "::1", "@": "unknown", "": "unknown", "pipe": "unknown"} {
		if got := addressGroup(remote); got != want {
			t.Errorf("%q is %q, want %q", remote, got, want)
		}
	}
}
