package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// tunnel is a connection between its entry and the detection of its protocol.
type tunnel struct {
	server  *Server
	conn    *conn
	route   *route
	began   time.Time
	host    policy.Host       // its target, as far as known
	verdict policy.Verdict    // on that host
	speaks  decision.Protocol // empty: no byte has come yet
	early   *earlyConn        // to the origin

	untrusted bool // see Event
}

// newTunnel asks policy about a connection on a route.
func (s *Server) newTunnel(c *conn, rt *route, began time.Time) *tunnel {
	t := &tunnel{server: s, conn: c, route: rt, began: began, host: s.candidate(rt)}
	t.verdict = s.admit(c, t.host, rt.port)
	return t
}

// admit asks policy about a connection to host, and registers it to be judged again whenever policy changes.
func (s *Server) admit(c *conn, host policy.Host, port uint16) policy.Verdict {
	s.flows.remove(c.flow)
	request := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	c.flow = s.flows.add(&flow{request: request, cut: func() { c.Conn.Close() }})
	return s.sandbox.Decide(s.ctx, request)
}

// forget removes the connection's flow: the connection is no longer for the host it was judged for.
func (s *Server) forget(c *conn) {
	s.flows.remove(c.flow)
	c.flow = nil
}

// candidate returns a connection's best known host: a name, the name that DNS gave its address to, or the address.
func (s *Server) candidate(rt *route) policy.Host {
	if !rt.host.IsZero() {
		return rt.host
	}
	if name, ok := s.sandbox.Pinned(rt.addr); ok {
		return name
	}
	return policy.HostOf(rt.addr)
}

// prepare starts what a TLS client will need while it makes its ClientHello: a certificate, a connection to the origin.
func (t *tunnel) prepare() {
	s, host := t.server, t.host
	if t.verdict.Action != policy.Allow || t.passes() || t.route.port == portHTTP {
		return
	}
	s.running.Go(func() {
		defer s.recovered()
		s.sandbox.Leaf(host) // the handshake reports its error
	})
	pinned, asked := s.sandbox.Pinned(t.route.addr)
	t.early = s.early.begin(host, t.route.port, asked && pinned == host)
}

const portHTTP = 80 // the port on which clients do not speak TLS

// explains reports whether a refused tunnel is opened, so that its client reads the reason inside: few clients show the
// answer of a proxy. It is opened for names, at the ports of the web and at unprivileged ones.
func (s *Server) explains(host policy.Host, port uint16) bool {
	return host.Public() && (port == portHTTP || port == 443 || port >= 1024)
}

func (t *tunnel) passes() bool { return t.verdict.Action == policy.Allow && t.verdict.PassThrough }

// refuse ends a connection for which no better answer exists.
func (t *tunnel) refuse(problem string) {
	stage := decision.StagePolicy
	if t.verdict.Action == policy.Allow {
		stage = decision.StageProtocol
		t.verdict = policy.Verdict{Rule: ruleProtocol, Reason: problem, Passable: t.verdict.Passable}
	}
	t.record(stage, problem, 0, 0)
	reset(t.conn)
}

func (t *tunnel) record(stage decision.Stage, problem string, sent, received int64) {
	t.server.sandbox.Record(Event{
		Time: t.began, Duration: time.Since(t.began), Entry: t.route.entry, Protocol: t.speaks, Stage: stage,
		Request: policy.Request{Layer: policy.LayerConnect, Host: t.host, Port: t.route.port},
		Verdict: t.verdict, Sent: sent, Received: received, Problem: problem,
		Untrusted: t.untrusted,
	})
}

// passThrough joins both sides without looking. If the client waits for the server to speak first, its first bytes are
// checked when they come: a TLS handshake must still be for the judged host.
func (t *tunnel) passThrough(unseen bool) {
	s := t.server
	s.flows.passes(t.conn.flow)
	passage, err := s.sandbox.Prepare(policy.Request{Layer: policy.LayerConnect, Host: t.host, Port: t.route.port}, nil)
	if err != nil {
		stage := stageOf(err, decision.StagePolicy)
		t.verdict = refusedBy(stage, err)
		t.record(stage, err.Error(), 0, 0)
		reset(t.conn)
		return
	}
	up, err := s.dial(s.ctx, policy.Request{Layer: policy.LayerDial, Host: t.host, Port: t.route.port}, nil,
		s.sandbox.Decide)
	passage.End(dialFailure(err))
	if err != nil {
		t.verdict = verdictOf(err, t.verdict)
		t.record(stageOf(err, decision.StageDial), err.Error(), 0, 0)
		reset(t.conn)
		return
	}
	look, idle := func() error { return nil }, s.timeouts.Idle
	if t.verdict.Neighbour {
		idle = neighbourIdle
	}
	if unseen {
		look = t.lookLate
	}
	sent, received, err := splice(t.conn, up, idle, look)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	t.record(decision.StageUpstream, problem, sent, received)
}

// neighbourIdle ends a connection to a neighbour without a byte in either direction: pools of connections to databases
// keep theirs for hours.
const neighbourIdle = 24 * time.Hour

// dialFailure returns the origin's fault in a dialling error.
func dialFailure(err error) error {
	var refused *blocked
	if errors.As(err, &refused) || errors.Is(err, context.Canceled) {
		return ErrUnfinished
	}
	return err
}

func (t *tunnel) lookLate() error {
	protocol, hello := peek(t.conn, t.server.timeouts.Idle)
	if protocol == protocolBroken {
		return errHello
	}
	if protocol != protocolTLS {
		return nil
	}
	name, err := hello.host(t.route)
	if err == nil && name != t.host {
		err = errOtherName
	}
	if err == nil && hello.encrypted {
		err = errEncryptedHello
	}
	return err
}

func (s *Server) recordMalformed(rt *route, err error) {
	s.sandbox.Record(Event{
		Time: time.Now(), Entry: rt.entry, Protocol: rt.protocol(), Stage: decision.StageProtocol,
		Request: policy.Request{Layer: policy.LayerHTTP, Host: rt.host, Port: rt.port},
		Verdict: policy.Verdict{Rule: ruleProtocol, Reason: err.Error()}, Status: http.StatusBadRequest, Problem: err.Error(),
	})
}

// Alerts that are sent before encryption (RFC 8446, 6).
const (
	alertUnrecognizedName = 112
	alertInternalError    = 80
	alertAccessDenied     = 49
)

func (t *tunnel) serveTLS(h *hello) {
	host, err := h.host(t.route)
	if err != nil {
		t.alert(alertUnrecognizedName, err)
		return
	}
	if host != t.host {
		t.early.abandon()
		t.host = host
		t.verdict = t.server.admit(t.conn, host, t.route.port)
		t.prepare()
	}
	if t.passes() {
		if h.encrypted {
			t.alert(alertUnrecognizedName, errEncryptedHello)
			return
		}
		t.passThrough(false)
		return
	}
	t.route.host, t.route.tls = host, true
	t.route.admitted = t.verdict.Action == policy.Allow
	if !t.route.admitted { // each request gets the reason
		t.record(decision.StagePolicy, "", 0, 0)
		t.server.forget(t.conn)
	}
	if t.route.admitted {
		t.early.proceed()
	}
	t.intercept()
}

// alert refuses a TLS handshake for a reason outside policy.
func (t *tunnel) alert(code byte, why error) {
	t.verdict = policy.Verdict{Rule: ruleTLS, Reason: why.Error()}
	t.record(decision.StageProtocol, why.Error(), 0, 0)
	t.writeAlert(code)
}

// writeAlert ends a TLS handshake that has not begun.
func (t *tunnel) writeAlert(code byte) {
	const alert, fatal = 21, 2
	t.conn.Conn.Write([]byte{alert, 3, 3, 0, 2, fatal, code})
	t.conn.Close() // not a reset, which could overtake the alert
}

// intercept terminates the client's TLS with the sandbox's certificate for the host, and serves the requests inside.
func (t *tunnel) intercept() {
	s := t.server
	leaf, err := s.sandbox.Leaf(t.route.host)
	named := t.route.host.Name() != ""
	switch {
	case !t.route.admitted && (err != nil || named && !s.explains(t.route.host, t.route.port)): // already recorded
		t.writeAlert(alertAccessDenied)
		return
	case err != nil:
		t.alert(alertInternalError, err)
		return
	}
	protocols := bothVersions
	if !s.sandbox.HTTP2(t.route.host) {
		protocols = onlyVersion1
	}
	client := &handshaking{Conn: t.conn}
	inside := tls.Server(client, &tls.Config{
		Certificates:           []tls.Certificate{*leaf},
		NextProtos:             protocols,
		MinVersion:             tls.VersionTLS12,
		SessionTicketsDisabled: true, // each connection is judged from its beginning
		// The connection stays on this machine, so post-quantum key exchange adds no protection.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	})
	ctx, cancel := context.WithTimeout(s.ctx, s.timeouts.Hello)
	defer cancel()
	if err := inside.HandshakeContext(ctx); err != nil {
		t.untrusted = client.refused(err)
		t.record(decision.StageProtocol, "TLS with the client: "+err.Error(), 0, 0)
		t.conn.Close()
		return
	}
	client.done = true
	if inside.ConnectionState().NegotiatedProtocol == "h2" {
		t.conn.meter = &meter{since: time.Now()}
		s.feed.give(inside)
		return
	}
	s.serveHTTP1(inside, t.conn, t.route)
}

// serveHTTP1 hands c to the HTTP server, behind framing. outer is the connection with the route: c or one below it.
func (s *Server) serveHTTP1(c net.Conn, outer *conn, rt *route) {
	outer.route = rt
	strict := &strictConn{outer: outer}
	strict.Conn = &patientConn{Conn: c, leaving: s.timeouts.Leaving, under: strict.under}
	outer.strict = strict
	strict.onError = func(err error) { s.recordMalformed(rt, err) }
	s.feed.give(strict)
}
