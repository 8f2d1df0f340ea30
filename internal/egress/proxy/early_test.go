package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// shaken starts an origin at name that reports each finished handshake, and serves the connection.
func (l *lab) shaken(name, address string) (o *origin, done chan string) {
	done = make(chan string, 10)
	return l.serveWith(name, address, &tls.Config{
		Certificates: []tls.Certificate{*l.world.leaf(l.t, nil, name)}, NextProtos: []string{"h2", "http/1.1"},
		VerifyConnection: func(c tls.ConnectionState) error { done <- c.ServerName; return nil },
	}), done
}

// raw starts an origin at name that only listens, and returns its connections.
func (l *lab) raw(name, address string) <-chan net.Conn {
	ln, conns := listen(l.t), make(chan net.Conn, 10)
	l.at(name, address)
	l.route(address+":443", ln)
	go func() {
		defer close(conns)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	l.t.Cleanup(func() {
		ln.Close()
		for c := range conns {
			c.Close()
		}
	})
	return conns
}

func (l *lab) trusting(name string) *tls.Config {
	return &tls.Config{RootCAs: l.inside.pool, ServerName: name}
}

// TestEarly: the proxy connects once, ahead of any request, to an origin that may receive every request, and the
// request uses that connection.
func TestEarly(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o, done := l.shaken("allowed.lab", "203.0.113.1")
	w := mustSecure(t, l.connect(t, "allowed.lab:443"), l.trusting("allowed.lab"))
	if name := <-done; name != "allowed.lab" || len(o.seen()) != 0 {
		t.Errorf("%s, and %d requests that nobody has made", name, len(o.seen()))
	}
	other := mustSecure(t, l.connect(t, "allowed.lab:443"), l.trusting("allowed.lab"))
	for _, w := range []*wire{w, other} {
		if res, _ := w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n").response("GET"); res.StatusCode != 200 {
			t.Error(res.Status)
		}
	}
	if n := len(l.dials()); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestEarlyForAnother: an early connection for a silent client serves another client, and outlives the first.
func TestEarlyForAnother(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	silent := l.connect(t, "allowed.lab:443")
	l.until("the first connection", func() bool { return len(l.dialled) == 1 })
	w := mustSecure(t, l.connect(t, "allowed.lab:443"), l.trusting("allowed.lab"))
	for range 2 {
		if res, _ := w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n").response("GET"); res.StatusCode != 200 {
			t.Error(res.Status)
		}
		silent.Close()
	}
	if len(l.dials()) != 1 || len(o.seen()) != 2 {
		t.Errorf("%d connections, %d requests", len(l.dials()), len(o.seen()))
	}
}

// TestNothingEarly: without Early's agreement there is no connection, neither for a silent client nor for a refused
// request.
func TestNothingEarly(t *testing.T) {
	l := newLab(t)
	l.shaken("part.lab", "203.0.113.1")
	var asked []policy.Layer
	l.early = func(r policy.Request) bool { asked = append(asked, r.Layer); return false }
	l.decide = func(r policy.Request) policy.Verdict {
		if r.Layer == policy.LayerHTTP && r.Path != "/part" {
			return policy.Verdict{Rule: "part", Reason: "it is not a part"}
		}
		return policy.Verdict{Action: policy.Allow, Rule: "part"}
	}
	w := mustSecure(t, l.connect(t, "part.lab:443"), l.trusting("part.lab"))
	if res, _ := w.send("GET /other HTTP/1.1\r\nHost: part.lab\r\n\r\n").response("GET"); res.StatusCode != 403 {
		t.Error(res.Status)
	}
	if n := len(l.dials()); n != 0 {
		t.Errorf("%d connections for what was refused", n)
	}
	if res, _ := w.send("GET /part HTTP/1.1\r\nHost: part.lab\r\n\r\n").response("GET"); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	dials := len(l.dials())
	l.mu.Lock()
	defer l.mu.Unlock()
	if dials != 1 || !slices.Equal(asked, []policy.Layer{policy.LayerConnect}) {
		t.Errorf("%d connections, asked at %v", dials, asked)
	}
}

// TestNothingEarlyToAnAddress: an address that needs an approval waits for the request.
func TestNothingEarlyToAnAddress(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab")
	l.shaken("allowed.lab", "203.0.113.1")
	refused := make(chan struct{}, 10)
	l.early = func(r policy.Request) bool {
		if r.Layer == policy.LayerDial {
			refused <- struct{}{}
		}
		return r.Layer == policy.LayerConnect
	}
	w := mustSecure(t, l.connect(t, "allowed.lab:443"), l.trusting("allowed.lab"))
	<-refused
	if n := len(l.dials()); n != 0 {
		t.Errorf("%d connections", n)
	}
	if res, _ := w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n").response("GET"); res.StatusCode != 200 ||
		len(l.dials()) != 1 {
		t.Errorf("%s, %d connections", res.Status, len(l.dials()))
	}
}

// TestSilentUntilTheNameAgrees: an origin receives nothing before the client's handshake has named it, and never if the
// handshake names another or is none.
func TestSilentUntilTheNameAgrees(t *testing.T) {
	for name, say := range map[string]func(*lab, *wire){
		"another name": func(l *lab, w *wire) { w.secure(l.trusting("other.lab")) },
		"no TLS":       func(_ *lab, w *wire) { w.send("EHLO allowed.lab\r\n").rest() },
		"HTTP":         func(_ *lab, w *wire) { w.send("GET / HTTP/1.1\r\nHost: other.lab\r\n\r\n").response("GET") },
		"nothing":      func(_ *lab, w *wire) { w.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.permit("allowed.lab", "other.lab")
			conns := l.raw("allowed.lab", "203.0.113.1")
			w := l.connect(t, "allowed.lab:443")
			up := <-conns // before the client has sent a byte
			say(l, w)
			if heard, err := io.ReadAll(up); len(heard) > 0 {
				t.Errorf("it heard %q, %v", heard, err)
			}
			up.Close()
		})
	}
}

// TestEarlyUnderAnEarlierPolicy: an early connection from before a change of policy is not used, whatever the change.
func TestEarlyUnderAnEarlierPolicy(t *testing.T) {
	allowed := policy.Verdict{Action: policy.Allow, Rule: "test"}
	for name, c := range map[string]struct {
		after  func(policy.Request) policy.Verdict
		status int
		dials  int
	}{
		"the same": {func(policy.Request) policy.Verdict { return allowed }, 200, 2},
		"no such request": {func(r policy.Request) policy.Verdict {
			if r.Layer == policy.LayerHTTP {
				return policy.Verdict{Rule: "narrow", Reason: "no longer"}
			}
			return allowed
		}, 403, 1},
		"no such address": {func(r policy.Request) policy.Verdict {
			if r.Layer == policy.LayerDial {
				return policy.Verdict{Rule: "narrow", Reason: "no longer"}
			}
			return allowed
		}, 403, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.permit("allowed.lab")
			_, done := l.shaken("allowed.lab", "203.0.113.1")
			w := mustSecure(t, l.connect(t, "allowed.lab:443"), l.trusting("allowed.lab"))
			<-done
			l.mu.Lock()
			l.decide = c.after
			l.mu.Unlock()
			l.server.Rejudge(c.after)
			res, _ := w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\n\r\n").response("GET")
			if res.StatusCode != c.status || len(l.dials()) != c.dials {
				t.Errorf("%s, %d connections", res.Status, len(l.dials()))
			}
		})
	}
}

// TestEarlyWhereItWasFound: the addresses of a DNS query serve the connection that follows it, once, and are judged.
func TestEarlyWhereItWasFound(t *testing.T) {
	const told, before, now = "198.18.0.1", "203.0.113.1", "203.0.113.2"
	for name, c := range map[string]struct {
		found, to string
		want      []string // addresses that are dialled
		left      bool     // left for another connection
	}{
		"found":         {before, told, []string{before, now}, false},
		"found inside":  {"10.0.0.7", told, []string{now, now}, false},
		"not found":     {"", told, []string{now, now}, false},
		"not told":      {before, now, []string{now, now}, true},
		"another's own": {before, "198.18.0.2", []string{now, now}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.permit("allowed.lab", "other.lab")
			l.pinned[netip.MustParseAddr(told)], l.pinned[netip.MustParseAddr("198.18.0.2")] = host("allowed.lab"),
				host("other.lab")
			if c.found != "" {
				l.found[host("allowed.lab")] = []netip.Addr{netip.MustParseAddr(c.found)}
			}
			l.serve("allowed.lab", now, nil)
			l.serve("elsewhere.lab", before, nil) // without allowed.lab's certificate
			var reached []string
			for range 2 {
				w := mustSecure(t, dialWire(t, l.transparent(c.to+":443")), l.trusting("allowed.lab"))
				w.send("GET / HTTP/1.1\r\nHost: allowed.lab\r\nConnection: close\r\n\r\n").rest()
				l.server.transport.CloseIdleConnections()
			}
			for i, to := range l.dials() {
				if l.hosts()[i] == "allowed.lab" {
					reached = append(reached, to.Addr().String())
				}
			}
			if left := len(l.Found(host("allowed.lab"))) > 0; !slices.Equal(reached, c.want) || left != c.left {
				t.Errorf("connected to %v, want %v; left: %v", reached, c.want, left)
			}
		})
	}
}

// TestEarlyFails: a request gets the reason of the failure, an invalid certificate among them, and there is no second
// attempt.
func TestEarlyFails(t *testing.T) {
	l := newLab(t)
	l.permit("nobody.lab", "liar.lab")
	l.at("nobody.lab", "203.0.113.1")
	l.serveWith("liar.lab", "203.0.113.2", &tls.Config{
		Certificates: []tls.Certificate{*l.world.leaf(t, nil, "other.lab")},
	})
	for _, host := range []string{"nobody.lab", "liar.lab"} {
		w := mustSecure(t, l.connect(t, host+":443"), l.trusting(host))
		if res, _ := w.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n").response(
			"GET"); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: %s", host, res.Status)
		}
	}
	if hosts := l.hosts(); !slices.Equal(hosts, []string{"nobody.lab", "liar.lab"}) {
		t.Errorf("connected to %v", hosts)
	}
}

// TestEarlyIsBounded: a client that shakes hands with many hosts causes a bounded number of connections at a time.
func TestEarlyIsBounded(t *testing.T) {
	var dialled atomic.Int32
	l := newLab(t, func(o *Options) {
		o.Dialer = dialerFunc(func(ctx context.Context) (net.Conn, error) {
			dialled.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	l.early = func(policy.Request) bool { return true }
	begun := 0
	for port := range uint16(3 * maxEarly) {
		if c := l.server.early.begin(host("allowed.lab"), port+1, false); c != nil {
			begun++
		}
	}
	l.server.Close()
	if n := int(dialled.Load()); begun != maxEarly || n > maxEarly {
		t.Errorf("%d were begun, %d dialled", begun, n)
	}
}

// dialerFunc is a Dialer without checks.
type dialerFunc func(context.Context) (net.Conn, error)

func (f dialerFunc) Dial(ctx context.Context, _ policy.Host, _ uint16, _ []netip.Addr,
	_ func(netip.Addr) error) (net.Conn, error) {
	return f(ctx)
}
