package gateway

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// routeWith returns a route with given options.
func routeWith(t *testing.T, o Options, documents ...*policy.Document) *Route {
	t.Helper()
	_, w := gatewayWith(t, o, documents...)
	return w
}

// gatewayWith returns a gateway with given options, and a route of it.
func gatewayWith(t *testing.T, o Options, documents ...*policy.Document) (*Gateway, *Route) {
	t.Helper()
	o.Dir = t.TempDir()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	g := New(o)
	t.Cleanup(g.Close)
	w, err := g.Open(Spec{Sandbox: cove.NewSandboxID(), Name: "test", Policy: documents})
	if err != nil {
		t.Fatal(err)
	}
	return g, w
}

func hostOf(t *testing.T, name string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// send prepares a request, as the proxy does.
func send(t *testing.T, w *Route, method, target, body string) (*http.Request, proxy.Passage, error) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Request{Method: method, URL: u, Header: http.Header{"Content-Type": {"application/json"}}}
	if body != "" {
		h.Body, h.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, u.Hostname()), Port: 443, Method: method,
		Path: u.EscapedPath()}
	p, err := proxyView{w}.Prepare(r, h)
	return h, p, err
}

// refusal returns a stage's refusal.
func refusal(t *testing.T, err error) *proxy.Refusal {
	t.Helper()
	var r *proxy.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("no refusal: %v", err)
	}
	return r
}

// TestOrder: the stages and their order are those of ARCHITECTURE.md.
func TestOrder(t *testing.T) {
	w, _ := newTestRoute(t)
	var names []decision.Stage
	for _, s := range w.pipeline {
		names = append(names, s.name)
	}
	want := []decision.Stage{decision.StageProtocol, decision.StageGitHub, decision.StageGit, decision.StageRate,
		decision.StageBreaker, decision.StageBudget,
		decision.StageCredentials, decision.StageUpstream, decision.StagePackages}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
}

func TestRate(t *testing.T) {
	c := clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	w := routeWith(t, Options{Clock: c, Rate: Rate{PerSecond: 2, Burst: 3}})
	ask := func(host string) error {
		_, p, err := send(t, w, "GET", "https://"+host+"/", "")
		if err == nil {
			p.End(nil)
		}
		return err
	}
	for range 3 {
		if err := ask("one.test"); err != nil {
			t.Fatal(err)
		}
	}
	r := refusal(t, ask("one.test"))
	if r.Code != cove.Overloaded || r.After != 500*time.Millisecond || !strings.Contains(r.Reason, "one.test:443") ||
		r.Rule != "gateway: rate of one host" {
		t.Errorf("%+v", r)
	}
	if err := ask("two.test"); err != nil {
		t.Errorf("another host: %v", err)
	}
	c.Advance(500 * time.Millisecond)
	if err := ask("one.test"); err != nil {
		t.Errorf("after a while: %v", err)
	}
	refusal(t, ask("one.test"))

	c.Advance(time.Hour)
	n := 0
	for i := range 100 { // alternate hosts, to stay below the rate
		if err := ask("host" + string(rune('a'+i%25)) + ".test"); err != nil {
			if r := refusal(t, err); r.Rule != "gateway: rate of the sandbox" {
				t.Errorf("%+v", r)
			}
			break
		}
		n++
	}
	if n != 3*together {
		t.Errorf("%d requests to all hosts", n)
	}

	c.Advance(time.Hour)
	connection := policy.Request{Layer: policy.LayerConnect, Host: hostOf(t, "db.test"), Port: 5432}
	for range 3 {
		if _, err := (proxyView{w}).Prepare(connection, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (proxyView{w}).Prepare(connection, nil); refusal(t, err).Code != cove.Overloaded {
		t.Errorf("a connection: %v", err)
	}
	if n := w.rates.one.Len(); n > maxUpstreams {
		t.Errorf("%d hosts are remembered", n)
	}
	free := routeWith(t, Options{})
	for range 10_000 {
		if _, _, err := send(t, free, "GET", "https://one.test/", ""); err != nil {
			t.Fatalf("without a limit: %v", err)
		}
	}
}

func TestRateForgets(t *testing.T) {
	s := newRates(Rate{PerSecond: 1000, Burst: 1000}, clock.Real())
	for i := range 3 * maxUpstreams {
		s.enter(policy.Request{Host: policy.Host{}, Port: uint16(i)}, nil)
	}
	if n := s.one.Len(); n != maxUpstreams {
		t.Errorf("%d are remembered", n)
	}
}

var errDown = errors.New("connection refused")

// TestBreaker: a failing upstream is refused, then probed by one request at a time, and admitted again after a success.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBreakers(slog.New(slog.NewTextHandler(&log, nil)))
		r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "down.test"), Port: 443}
		enter := func() leg {
			t.Helper()
			l, err := b.enter(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		refused := func() *proxy.Refusal {
			t.Helper()
			_, err := b.enter(r, nil)
			return refusal(t, err)
		}
		is := func(open, halfOpen int) {
			t.Helper()
			if o, h := b.states(); o != open || h != halfOpen {
				t.Errorf("%d open and %d half-open, want %d and %d", o, h, open, halfOpen)
			}
		}
		fail := func() { enter().end(errDown) }
		for range maxFailures - 1 {
			fail()
		}
		enter().end(nil) // a success resets the count
		for range maxFailures - 1 {
			fail()
			enter().end(proxy.ErrUnfinished) // no evidence
		}
		is(0, 0)
		fail()
		is(1, 0)
		if f := refused(); f.Code != cove.Unavailable || f.After != maxPause ||
			!strings.Contains(f.Reason, "down.test:443") || !strings.Contains(f.Reason, errDown.Error()) {
			t.Errorf("%+v", f)
		}
		time.Sleep(maxPause / 2) // sleep: the bubble's clock
		if f := refused(); f.After != maxPause/2 {
			t.Errorf("after a while: %+v", f)
		}
		other := policy.Request{Layer: policy.LayerConnect, Host: r.Host, Port: 80}
		if _, err := b.enter(other, nil); err != nil {
			t.Errorf("another port: %v", err)
		}

		time.Sleep(maxPause) // sleep: the bubble's clock
		is(0, 1)
		probe := enter()
		refused() // one probe at a time
		probe.end(proxy.ErrUnfinished)
		enter().end(errDown)
		is(1, 0)
		refused()

		time.Sleep(2 * maxPause) // sleep: the bubble's clock
		probe = enter()
		probe.response(&http.Response{StatusCode: 200}) // the answer continues for long
		is(0, 0)
		fail()
		enter().end(nil)
		probe.end(errDown)
		is(0, 0)
		if text := log.String(); strings.Count(text, "to=open") != 2 || strings.Count(text, "to=closed") != 1 ||
			!strings.Contains(text, "down.test:443") {
			t.Errorf("the log: %s", text)
		}
	})
}

// TestBreakerAnswers lists the answers that count as failures.
func TestBreakerAnswers(t *testing.T) {
	r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "some.test"), Port: 443}
	for status, opens := range map[int]bool{200: false, 301: false, 400: false, 403: false, 404: false, 429: false,
		500: false, 501: false, 529: false, 502: true, 503: true, 504: true} {
		b := newBreakers(slog.New(slog.DiscardHandler))
		for range maxFailures {
			l, err := b.enter(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			l.response(&http.Response{StatusCode: status})
			l.end(nil)
		}
		if open, _ := b.states(); (open == 1) != opens {
			t.Errorf("%d: %d open", status, open)
		}
	}
}

// TestBreakerAndStreams: an answer that breaks off after its beginning is not a failure; an answer that never begins
// is.
func TestBreakerAndStreams(t *testing.T) {
	r := policy.Request{Layer: policy.LayerHTTP, Host: hostOf(t, "models.test"), Port: 443}
	b := newBreakers(slog.New(slog.DiscardHandler))
	enter := func() leg {
		t.Helper()
		l, err := b.enter(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range 2 * maxFailures {
		stream := enter()
		stream.response(&http.Response{StatusCode: 200})
		stream.end(errDown)
	}
	for range maxFailures - 1 {
		enter().end(errDown)
	}
	if open, _ := b.states(); open != 0 {
		t.Error("it is left alone for streams that broke off")
	}
	stream := enter()
	stream.response(&http.Response{StatusCode: 200}) // a success resets the count
	for range maxFailures {
		enter().end(errDown)
	}
	stream.end(nil)
	if open, _ := b.states(); open != 1 {
		t.Error("it is not left alone, though it does not answer")
	}
}

// TestBreakerIsOnesOwn: one sandbox's failures do not affect another.
func TestBreakerIsOnesOwn(t *testing.T) {
	g, one := gatewayWith(t, Options{})
	other := routeWith(t, Options{})
	for range maxFailures {
		_, p, err := send(t, one, "GET", "https://down.test/", "")
		if err != nil {
			t.Fatal(err)
		}
		p.End(errDown)
	}
	_, _, err := send(t, one, "GET", "https://down.test/", "")
	refusal(t, err)
	if open := g.State().Open; open != 1 {
		t.Errorf("%d are open", open)
	}
	if _, _, err := send(t, other, "GET", "https://down.test/", ""); err != nil {
		t.Error(err)
	}
	if _, _, err := send(t, one, "GET", "https://up.test/", ""); err != nil {
		t.Error(err)
	}
}

// TestGitHubStage: the filter's refusal is the answer, and its rewritten body is sent.
func TestGitHubStage(t *testing.T) {
	pulls := &policy.Document{Source: "--allow-pr", PullRequests: policy.Granted}
	w := routeWith(t, Options{GitHub: github.NewServers(hostOf(t, "github.example.com"))}, pulls)
	h, _, err := send(t, w, "POST", "https://api.github.com/repos/o/r/pulls", ` { "title" : "x" } `)
	if err != nil {
		t.Fatal(err)
	}
	if sent, _ := io.ReadAll(h.Body); string(sent) != `{"title":"x"}` || h.ContentLength != int64(len(sent)) {
		t.Errorf("%q of %d goes out", sent, h.ContentLength)
	}
	for _, target := range []string{"https://api.github.com/repos/o/r/pulls/1/merge",
		"https://github.example.com/api/v3/repos/o/r/pulls/1/merge"} {
		_, _, err = send(t, w, "PUT", target, "{}")
		if r := refusal(t, err); r.Code != cove.Forbidden || r.Rule != "github: merge" || r.Remedy != "" {
			t.Errorf("%+v", r)
		}
	}
	_, _, err = send(t, w, "POST", "https://api.github.com/graphql",
		`{"query":"mutation{mergePullRequest(input:{}){clientMutationId}}"}`)
	refusal(t, err)
	_, _, err = send(t, w, "POST", "https://api.github.com/repos/o/r/pulls?", "{}")
	refusal(t, err)
	_, _, err = send(t, w, "POST", "https://api.github.com/repos/o/r/pulls",
		`{"body":"`+strings.Repeat("x", maxGitHubBody)+`"}`)
	if cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a large body: %v", err)
	}
	if _, _, err = send(t, w, "POST", "https://github.com/o/r.git/git-receive-pack", "x"); err != nil {
		t.Errorf("git: %v", err)
	}

	narrower, err := policy.Compile(policy.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	w.next.Store(narrower) // while a change cuts connections
	_, _, err = send(t, w, "POST", "https://api.github.com/repos/o/r/pulls", "{}")
	if r := refusal(t, err); !strings.Contains(r.Remedy, "--allow-pr") {
		t.Errorf("%+v", r)
	}
}

// TestGitHubIsLookedInto: connections to the API are not passed through, those of git over SSH are.
func TestGitHubIsLookedInto(t *testing.T) {
	d, err := policy.Parse("p.yaml",
		[]byte("rules: [{hosts: [api.github.com, github.example.com, github.com], ports: [22, 443, 8443], "+
			"pass_through: true}]"))
	if err != nil {
		t.Fatal(err)
	}
	w := routeWith(t, Options{GitHub: github.NewServers(hostOf(t, "github.example.com"))}, d)
	for place, want := range map[string]policy.Action{
		"api.github.com:443": policy.Deny, "github.example.com:443": policy.Deny, "github.example.com:8443": policy.Deny,
		"github.example.com:22": policy.Allow, "github.com:443": policy.Allow,
	} {
		h, port, err := policy.ParseAuthority(place, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v := w.judge(policy.Request{Layer: policy.LayerConnect, Host: h, Port: port}); v.Action != want {
			t.Errorf("%s: %+v", place, v)
		}
	}
}
