package httpapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestRetryAfter: an answer says when to try again where that is known, on every way that an error takes.
func TestRetryAfter(t *testing.T) {
	h := start(t, nil)
	for _, c := range []struct {
		err    *cove.Error
		status int
		after  string
	}{
		{cove.Errorf(cove.Overloaded, "full").WithRetry(7 * time.Second), 429, "7"},
		{cove.Errorf(cove.Overloaded, "full"), 429, "1"},
		{cove.Errorf(cove.Unavailable, "away"), 503, "1"},
		{cove.Errorf(cove.NotFound, "not there").WithRetry(7 * time.Second), 404, ""},
	} {
		h.fake.do = fails(c.err)
		for _, path := range []string{"/execute", "/execute/stream"} {
			r := h.post(path, snippet)
			if r.StatusCode != c.status || r.Header.Get("Retry-After") != c.after ||
				!strings.Contains(r.body, c.err.Hint) {
				t.Errorf("%s of %q: status %d, Retry-After %q, %s", path, c.err, r.StatusCode, r.Header.Get("Retry-After"),
					r.body)
			}
		}
	}
}

func TestRates(t *testing.T) {
	m := clocktest.NewManual(time.Unix(1_900_000_000, 0))
	h := start(t, func(o *Options) {
		withKeys(o)
		o.Clock, o.Rate = m, Rate{PerSecond: 1, Burst: 3}
	})
	ask := func(secret string) reply { return h.get("/executions", "X-API-Key", secret) }
	for i := range 3 {
		if r := ask("cove_right"); r.StatusCode != 200 {
			t.Errorf("request %d: status %d", i, r.StatusCode)
		}
	}
	r := ask("cove_right")
	if r.StatusCode != 429 || r.Header.Get("Retry-After") != "1" || r.error(t).Code != string(cove.Overloaded) {
		t.Errorf("status %d, headers %v", r.StatusCode, r.Header)
	}
	if r := ask("cove_other"); r.StatusCode != 200 {
		t.Errorf("another key: status %d", r.StatusCode)
	}
	m.Jump(time.Hour) // no time has passed
	if r := ask("cove_right"); r.StatusCode != 429 {
		t.Errorf("after a jump of the wall clock: status %d", r.StatusCode)
	}
	m.Jump(-48 * time.Hour)
	m.Advance(time.Second)
	if r := ask("cove_right"); r.StatusCode != 200 {
		t.Errorf("a second later: status %d", r.StatusCode)
	}
	// Guessing keys is rated too, and by address.
	var last int
	for i := range 10 {
		last = ask(fmt.Sprint("guess", i)).StatusCode
	}
	if last != 429 {
		t.Errorf("the tenth guess: status %d", last)
	}
	for range 10 {
		if r := h.do(h.owner, "GET", "/executions", ""); r.StatusCode != 200 {
			t.Errorf("the owner: status %d", r.StatusCode)
		}
	}
}

// TestRateOfAKey: a key with a rate of its own has that, and the others have the server's.
func TestRateOfAKey(t *testing.T) {
	h := start(t, func(o *Options) {
		withKeys(o)
		o.Clock, o.Rate = clocktest.NewManual(time.Unix(1_900_000_000, 0)), Rate{PerSecond: 1000, Burst: 1000}
		o.Grants = access.Grants{cove.KeyHolder("ci"): {Scopes: access.Usual, Rate: 0.5}}
	})
	for i := range 4 {
		r, other := h.get("/executions", "X-API-Key", "cove_right"), h.get("/executions", "X-API-Key", "cove_other")
		if (r.StatusCode == 429) != (i > 0) || other.StatusCode != 200 {
			t.Errorf("request %d: %d, of the other key %d", i, r.StatusCode, other.StatusCode)
		}
		if i > 0 && (r.Header.Get("Retry-After") != "2" || !strings.Contains(r.body, "more than 0.5 a second")) {
			t.Errorf("Retry-After %s: %s", r.Header.Get("Retry-After"), r.body)
		}
	}
}

// TestExpiredKeys: an expired key is refused with the reason, the refusal is recorded as its own, and it opens what is
// open to strangers.
func TestExpiredKeys(t *testing.T) {
	now := time.Now()
	h := start(t, func(o *Options) {
		withKeys(o)
		o.Grants = access.Grants{cove.KeyHolder("ci"): {Scopes: access.Usual, Expires: now.Add(-time.Second)},
			cove.KeyHolder("dev"): {Scopes: access.Usual, Expires: now.Add(time.Hour)}}
	})
	r := h.get("/executions", "X-API-Key", "cove_right")
	if e := r.error(t); r.StatusCode != 401 || e.Code != string(cove.Unauthenticated) ||
		!strings.Contains(e.Error, "the API key ci has expired") || !strings.Contains(e.Hint, "expires") {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if r := h.get("/health", "X-API-Key", "cove_right"); r.StatusCode != 200 || strings.Contains(r.body, "version") {
		t.Errorf("health: %d %s", r.StatusCode, r.body)
	}
	if r := h.get("/executions", "X-API-Key", "cove_other"); r.StatusCode != 200 {
		t.Errorf("one that has not expired: %d %s", r.StatusCode, r.body)
	}
	if all := h.store.audited(); len(all) != 1 || all[0].Who != "key:ci" || all[0].Verdict != "deny" {
		t.Errorf("records %+v", all)
	}
}

func TestLimiterIsBounded(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 1, Burst: 1}, nil)
	now := time.Unix(1, 0)
	for i := range 3 * maxCallers {
		l.allow(fmt.Sprint(i), now)
		l.allow("regular", now) // is seen all the time, so it is not forgotten
	}
	if len(l.byName) != maxCallers || l.recent.Len() != maxCallers {
		t.Errorf("%d callers, %d in the list", len(l.byName), l.recent.Len())
	}
	if ok, _ := l.allow("regular", now); ok {
		t.Error("a busy caller was forgotten, and got a new bucket")
	}
	if ok, _ := newLimiter(Rate{}, nil).allow("x", now); !ok {
		t.Error("no rate is no limit")
	}
}

// TestPlaces: a caller whose requests have all the places that it may have still ends executions and asks for the
// server's health, and the machine's owner has a place.
func TestPlaces(t *testing.T) {
	h := start(t, func(o *Options) { o.MaxRequests = 4 })
	release, begun := make(chan struct{}), make(chan cove.ExecutionID, 2)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		begun <- id
		<-release
		return finished(id), nil
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { h.post("/execute", snippet) })
	}
	id := <-begun
	<-begun
	if r := h.post("/execute", snippet); r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("status %d", r.StatusCode)
	}
	if r := h.get("/health"); r.StatusCode != 200 {
		t.Errorf("health: status %d", r.StatusCode)
	}
	if r := h.do(h.owner, "GET", "/executions", ""); r.StatusCode != 200 {
		t.Errorf("the owner: status %d", r.StatusCode)
	}
	h.store.executions[id] = store.Execution{ID: id, Status: cove.StatusKilled}
	if r := h.do(h.client, "DELETE", "/executions/"+string(id), ""); r.StatusCode != 200 {
		t.Errorf("kill: status %d", r.StatusCode)
	}
	close(release)
	wg.Wait()
	if r := h.get("/executions"); r.StatusCode != 200 {
		t.Errorf("afterwards: status %d", r.StatusCode)
	}
}

func TestHistory(t *testing.T) {
	h := start(t, nil)
	id := cove.NewExecutionID()
	h.store.executions[id] = store.Execution{ID: id, Language: "python", Status: cove.StatusCompleted,
		CreatedAt: time.Unix(1, 0).UTC(), Owner: caller, CodeHash: "h"}
	e := decode[api.Execution](t, h.get("/executions/"+string(id)), 200)
	if e.ID != string(id) || e.SecurityEvents == nil {
		t.Errorf("%+v", e)
	}
	others := cove.NewExecutionID()
	h.store.executions[others] = store.Execution{ID: others, Status: cove.StatusCompleted, Owner: cove.KeyHolder("other")}
	if r := h.get("/executions/" + string(others)); r.StatusCode != 404 {
		t.Errorf("another's: status %d", r.StatusCode)
	}
	delete(h.store.executions, others)
	l := decode[api.ExecutionList](t,
		h.get(
			"/executions?language=python&status=completed&since=2030-01-02T03:04:05Z&until=2031-01-02T03:04:05.5%2B01:00&cursor=abc&limit=7"), 200)
	if len(l.Executions) != 1 {
		t.Errorf("%+v", l)
	}
	q := h.store.query
	if q.Client != caller.String() || q.Language != "python" || q.Status != cove.StatusCompleted || q.Cursor != "abc" ||
		q.Limit != 7 || !q.Since.Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) ||
		!q.Until.Equal(time.Date(2031, 1, 2, 2, 4, 5, 500_000_000, time.UTC)) {
		t.Errorf("query %+v", q)
	}
	h.get("/executions")
	if q := h.store.query; q.Limit != 50 || q.Cursor != "" || !q.Since.IsZero() {
		t.Errorf("default query %+v", q)
	}
	for _, bad := range []string{"limit=0", "limit=501", "limit=-1", "limit=x", "limit=1e2", "status=odd",
		"since=yesterday", "since=2030-01-02", "until=1", "tenant=*", "language=" + strings.Repeat("x", 65),
		"cursor=" + strings.Repeat("x", 257)} {
		if r := h.get("/executions?" + bad); r.StatusCode != 400 {
			t.Errorf("%s: status %d", bad, r.StatusCode)
		} else {
			r.error(t)
		}
	}
	h.store.err = cove.Errorf(cove.InvalidArgument, "not a cursor")
	if r := h.get("/executions?cursor=x"); r.StatusCode != 400 {
		t.Errorf("cursor: status %d", r.StatusCode)
	}
}

func TestKillErrors(t *testing.T) {
	h := start(t, nil)
	for code, status := range map[cove.Code]int{cove.NotFound: 404, cove.Conflict: 409} {
		h.fake.killErr = cove.Errorf(code, "no")
		if r := h.do(h.client, "DELETE", "/executions/"+someID, ""); r.StatusCode != status {
			t.Errorf("%s: status %d", code, r.StatusCode)
		}
	}
}

func TestMetrics(t *testing.T) {
	h := start(t, nil)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		id := cove.NewExecutionID()
		started(id)
		r := finished(id)
		r.Events = []detect.Event{{Rule: "nsenter", Severity: detect.High, Line: 1}}
		r.Limit = cove.LimitTimeout
		r.Models = []model.ProviderUsage{{Provider: "anthropic",
			Usage: model.Usage{Requests: 2, Input: 10, Output: 3, CacheRead: 100, Cost: 0.25}}}
		return r, nil
	}
	h.post("/execute", snippet)
	h.post("/execute", `{"language":"py","code":"x"}`)
	h.post("/execute", `{"language":"made up `+strings.Repeat("x", 50)+`","code":"x"}`)
	h.fake.do = fails(cove.Errorf(cove.Forbidden, "refused"))
	h.post("/execute", snippet)
	h.get("/no/such/path/" + someID)
	text := h.do(h.owner, "GET", "/metrics", "").body
	for _, want := range []string{
		`sandbox_executions_total{engine="fake",language="python",status="timeout"} 2`,
		`sandbox_executions_total{engine="fake",language="other",status="timeout"} 1`,
		`sandbox_execution_duration_seconds_count{language="python"} 2`,
		`sandbox_executions_rejected_total{code="forbidden"} 1`,
		`sandbox_security_events_total{rule="nsenter",severity="high"} 3`,
		`sandbox_model_requests_total{provider="anthropic"} 6`,
		`sandbox_model_tokens_total{kind="input",provider="anthropic"} 30`,
		`sandbox_model_tokens_total{kind="cache_read",provider="anthropic"} 300`,
		`sandbox_model_cost_dollars_total{provider="anthropic"} 0.75`,
		`sandbox_active_executions 0`, `sandbox_computing_executions 1`, `sandbox_queue_depth 2`,
		`sandbox_queue_estimated_wait_seconds 1.5`, `sandbox_queue_wait_seconds_bucket{le="1"} 3`,
		`sandbox_queue_wait_seconds_bucket{le="2.5"} 4`, `sandbox_queue_wait_seconds_count 6`,
		`sandbox_queue_wait_seconds_sum 200`, `sandbox_queue_refused_total{reason="full"} 7`,
		`sandbox_engine_up{engine="fake"} 1`,
		`sandbox_engine_up{engine="docker"} 0`,
		`sandbox_http_requests_total{route="POST /execute",status="200"} 3`,
		`sandbox_http_requests_total{route="other",status="404"} 1`, "go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, no := range []string{someID, "made up", "127.0.0.1", "/root"} {
		if strings.Contains(text, no) {
			t.Errorf("%q is in the metrics", no)
		}
	}
	h = start(t, nil)
	other := h.do(h.owner, "GET", "/metrics", "").body
	if strings.Contains(other, "sandbox_executions_total{") {
		t.Error("two servers share their numbers")
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	h := start(t, func(o *Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			MinVersion: tls.VersionTLS12}
	})
	transport := h.client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	plain := h.url
	h.url = "https://" + h.address
	r := h.get("/health")
	if r.StatusCode != 200 || r.Header.Get("Strict-Transport-Security") == "" || r.TLS.Version < tls.VersionTLS12 {
		t.Errorf("status %d, headers %v", r.StatusCode, r.Header)
	}
	for _, p := range []struct {
		offered []string
		chosen  string
	}{{[]string{"h2", "http/1.1"}, "h2"}, {[]string{"http/1.1"}, "http/1.1"}, {nil, ""}} {
		conn, err := tls.Dial("tcp", h.address, &tls.Config{RootCAs: pool, NextProtos: p.offered})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != p.chosen {
			t.Errorf("of %q it chooses %q", p.offered, got)
		}
		conn.Close()
	}
	if r := h.post("/execute", snippet, "Origin", h.url); r.StatusCode != 200 {
		t.Errorf("its own origin: status %d", r.StatusCode)
	}
	if r := h.post("/execute", snippet, "Origin", plain); r.StatusCode != 403 {
		t.Errorf("the plain origin: status %d", r.StatusCode)
	}
	if conn, err := tls.Dial("tcp", h.address, &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
	resp, err := http.Get(plain + "/health")
	if err != nil {
		t.Fatalf("plain HTTP: %v", err)
	}
	defer resp.Body.Close()
	var said api.Error
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || resp.StatusCode != 400 ||
		!strings.Contains(said.Hint, "https://") {
		t.Errorf("plain HTTP: status %d, %+v, %v", resp.StatusCode, said, err)
	}
	h.url = plain
	if r := h.do(h.owner, "GET", "/health", ""); r.StatusCode != 200 {
		t.Errorf("the owner's socket: status %d", r.StatusCode)
	}
}

func TestShutdownWaitsAndThenCuts(t *testing.T) {
	for _, patient := range []bool{true, false} {
		fake := &fakeExecutor{}
		s, err := New(Options{Executor: fake, Store: store.NewVault(&fakeStore{}), CheckPath: hostpath.Rules{}.Check})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		begun, release := make(chan struct{}), make(chan struct{})
		fake.do = func(ctx context.Context, _ execution.Request, started func(cove.ExecutionID),
			_ process.Output) (execution.Result, error) {
			id := cove.NewExecutionID()
			started(id)
			close(begun)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return finished(id), nil
		}
		status := make(chan int, 1)
		client := &http.Client{Transport: &http.Transport{}}
		go func() {
			resp, err := client.Post("http://"+ln.Addr().String()+"/execute", "application/json", strings.NewReader(snippet))
			if err != nil {
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		want := 0
		if patient {
			want = 200
			time.AfterFunc(50*time.Millisecond, func() { close(release) })
		}
		err = s.Shutdown(ctx)
		cancel()
		if (err == nil) != patient {
			t.Errorf("patient %v: %v", patient, err)
		}
		if got := <-status; got != want {
			t.Errorf("patient %v: status %d, want %d", patient, got, want)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		client.CloseIdleConnections()
	}
}

// TestForOneCommand: what runs something is answered before any other route is made, and everything else as always.
func TestForOneCommand(t *testing.T) {
	s, err := New(Options{Executor: &fakeExecutor{}, Store: store.NewVault(&fakeStore{}),
		CheckPath: hostpath.Rules{}.Check, Keys: []Key{key("someone", "a key of someone's")}, ForOneCommand: true})
	if err != nil {
		t.Fatal(err)
	}
	all, made := s.all, false
	s.all = func() *edge { made = true; return all() }
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-API-Key", "a key of someone's")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	const run = `{"language":"python","code":"print(1)"}`
	if code, text := ask("POST", "/execute/stream", run); code != 200 || !strings.Contains(text, "event: done") || made {
		t.Errorf("%d %s, others made: %v", code, text, made)
	}
	if code, text := ask("POST", "/execute/stream", `{"nope":1}`); code != 400 || made {
		t.Errorf("a wrong request: %d %s, others made: %v", code, text, made)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{{"POST", "/execute", run, 200}, {"GET", "/health", "", 200}, {"GET", "/nowhere", "", 404},
		{"GET", "/execute/stream", "", 405}, {"GET", "/openapi.json", "", 200}, {"POST", "/execute/stream", run, 200},
		{"GET", "//health", "", 404}} {
		if code, text := ask(c.method, c.path, c.body); code != c.want || !made {
			t.Errorf("%s %s: %d %.200s, made %v", c.method, c.path, code, text, made)
		}
	}
}
