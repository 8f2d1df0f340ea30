package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/dns"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// resolver answers with answer, and records the names.
type resolver struct {
	answer func(ctx context.Context, name string) ([]netip.Addr, error)

	mu    sync.Mutex
	names []string
}

func (r *resolver) LookupNetIP(ctx context.Context, _, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	r.names = append(r.names, name)
	r.mu.Unlock()
	return r.answer(ctx, name)
}

func (r *resolver) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}

func at(address string) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(address)}, nil
	}
}

// TestLookups: each query makes a look-up, whether or not the name was looked up before.
func TestLookups(t *testing.T) {
	r := &resolver{answer: at("203.0.113.1")}
	l := newLookups(r, clock.Real())
	for range 2 {
		if err := l.exists(t.Context(), hostOf(t, "one.test")); err != nil {
			t.Error(err)
		}
	}
	r.answer = func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	for range 2 {
		if err := l.exists(t.Context(), hostOf(t, "one.test")); !errors.Is(err, dns.ErrNoName) {
			t.Errorf("%v", err)
		}
	}
	if n := r.asked(); n != 4 || len(l.now) != 0 {
		t.Errorf("asked %d times, %d under way", n, len(l.now))
	}
}

// TestFound: the addresses of the last look-up are returned once, and only shortly after it.
func TestFound(t *testing.T) {
	now := clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	r := &resolver{answer: at("203.0.113.1")}
	l := newLookups(r, now)
	one := hostOf(t, "one.test")
	ask := func() { l.exists(t.Context(), one) }
	expect := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, a := range l.take(one) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	expect("before")
	ask()
	expect("at once", "203.0.113.1")
	expect("again")
	ask()
	r.answer = at("203.0.113.2")
	ask()
	expect("the last", "203.0.113.2")
	ask()
	now.Advance(2 * foundLife)
	expect("late")
	ask()
	r.answer = func(context.Context, string) ([]netip.Addr, error) { return nil, errDown }
	ask()
	expect("no more")
	r.answer = at("203.0.113.1")
	for i := range 3 * maxFound {
		l.exists(t.Context(), hostOf(t, fmt.Sprintf("n%d.test", i)))
	}
	if n := len(l.found); n > maxFound {
		t.Errorf("%d are kept", n)
	}
}

// TestLookupsTogether: concurrent callers share a look-up; if its maker leaves without an answer, another caller makes
// it.
func TestLookupsTogether(t *testing.T) {
	begun, answer := make(chan struct{}, 2), make(chan netip.Addr)
	r := &resolver{answer: func(ctx context.Context, _ string) ([]netip.Addr, error) {
		begun <- struct{}{}
		select {
		case a := <-answer:
			return []netip.Addr{a}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	l := newLookups(r, clock.Real())
	first, leave := context.WithCancel(t.Context())
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		if err := l.exists(first, hostOf(t, "one.test")); err == nil {
			t.Error("the first has an answer")
		}
	})
	<-begun
	both.Go(func() {
		if err := l.exists(t.Context(), hostOf(t, "one.test")); err != nil {
			t.Errorf("the second: %v", err)
		}
	})
	leave()
	<-begun
	answer <- netip.MustParseAddr("203.0.113.1")
}

// TestFoundIsJudged: a looked-up name is judged when it is dialled, by the policy and the addresses of that time.
func TestFoundIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		address string // when it is dialled
		after   string // rules
		reason  string
		asked   int
	}{
		"rebound":         {"10.0.0.7", "- hosts: allowed.test", "allowed.test is at 10.0.0.7", 2},
		"address denied":  {"203.0.113.1", "- hosts: allowed.test\n- {cidrs: 203.0.113.0/24, action: deny}", "denies", 2},
		"name denied":     {"203.0.113.1", "- {hosts: allowed.test, action: deny}", "denies", 1},
		"allowed no more": {"203.0.113.1", "- hosts: other.test", "no rule allows", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := &resolver{answer: at("203.0.113.1")}
			w := routeWith(t, Options{Dialer: proxy.Direct{Resolver: r}}, allow(t, "allowed.test"))
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			w.ServeProxy(ln)
			if err := (dnsView{w}).Resolve(t.Context(), hostOf(t, "allowed.test")); err != nil {
				t.Fatal(err)
			}
			r.answer = at(c.address)
			if _, err := w.Replace(document(t, "rules:\n"+c.after)); err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusForbidden || !strings.Contains(string(body), c.reason) || r.asked() != c.asked {
				t.Errorf("%s %s, asked %d times", res.Status, body, r.asked())
			}
		})
	}
}

// TestEarly checks the connections that may be made before a request.
func TestEarly(t *testing.T) {
	d := document(t, `rules:
- hosts: [all.test, silent.test, less.test, api.github.com, git.test, down.test]
- {hosts: part.test, methods: GET}
- {hosts: less.test, paths: /x, action: deny}
- {hosts: asked.test, action: ask}
- {cidrs: 10.0.0.7, action: ask}
- {cidrs: 203.0.113.0/24, action: deny}
git: [{remote: https://git.test/group/repo}]
`)
	g, w := gatewayWith(t, Options{GitHub: github.NewServers(),
		Clock: clocktest.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), Rate: Rate{PerSecond: 1, Burst: 2}}, d)
	c := proxyView{w}
	for name, want := range map[string]bool{
		"all.test": true, "part.test": false, "less.test": false, "asked.test": false, "other.test": false,
		"api.github.com": false, "git.test": false,
		policy.GatewayService: false,
	} {
		if got := c.Early(connectTo(t, name, 443)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for address, want := range map[string]bool{"198.51.100.1": true, "203.0.113.1": false, "10.0.0.7": false,
		"10.0.0.8": false} {
		if got := c.Early(dialTo(t, "all.test", address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}

	// An early connection counts as its request does, whether or not the request comes.
	all := connectTo(t, "all.test", 443)
	for range 2 { // the first is the one asked about above
		if _, err := w.rates.enter(all, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.rates.enter(all, nil); err == nil || c.Early(all) {
		t.Error("one more than there may be")
	}
	silent := connectTo(t, "silent.test", 443)
	for i, want := range []bool{true, true, false} {
		if c.Early(silent) != want {
			t.Errorf("connection %d without a request: want %v", i+1, want)
		}
	}
	// An upstream with an open circuit gets no connection.
	failing := connectTo(t, "down.test", 443)
	if !c.Early(failing) {
		t.Error("one that has not been tried")
	}
	for range maxFailures {
		l, err := w.breakers.enter(failing, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.end(errDown)
	}
	if c.Early(failing) {
		t.Error("one that fails is tried")
	}
	// During a change both policies must allow it.
	w, err := g.Open(Spec{Sandbox: "sb_other", Name: "other", Policy: []*policy.Document{allow(t, "fresh.test")}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(policy.Machine{}, document(t, "rules: [{hosts: fresh.test, paths: /a}]"))
	if err != nil {
		t.Fatal(err)
	}
	w.next.Store(p)
	if (proxyView{w}).Early(connectTo(t, "fresh.test", 443)) {
		t.Error("during a change")
	}
	w.next.Store(nil)
	if !(proxyView{w}).Early(connectTo(t, "fresh.test", 443)) {
		t.Error("without one")
	}
}
