package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Alerts that are sent before encryption (RFC 8446, 6).
const (
	alertUnrecognizedName = 112
	alertInternalError    = 80
	alertAccessDenied     = 49
)

// serveTLS determines the host of a TLS handshake, and intercepts it or passes it through.
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

// intercept terminates the client's TLS with the sandbox's own certificate for the host, and serves the requests
// inside.
func (t *tunnel) intercept() {
	s := t.server
	leaf, err := s.sandbox.Leaf(t.route.host)
	switch {
	case err != nil && !t.route.admitted: // already recorded
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
	inside := tls.Server(t.conn, &tls.Config{
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
		t.record(decision.StageProtocol, "TLS with the client: "+err.Error(), 0, 0)
		t.conn.Close()
		return
	}
	if inside.ConnectionState().NegotiatedProtocol == "h2" {
		t.conn.meter = &meter{since: time.Now()}
		s.feed.give(inside)
		return
	}
	s.serveHTTP1(inside, t.conn, t.route)
}

// serveHTTP1 hands a connection to the HTTP server, behind framing. outer is the connection with the route: c or one
// below it.
func (s *Server) serveHTTP1(c net.Conn, outer *conn, rt *route) {
	outer.route = rt
	strict := &strictConn{}
	strict.Conn = &patientConn{Conn: c, leaving: s.timeouts.Leaving, under: strict.under}
	outer.strict = strict
	strict.onError = func(err error) { s.recordMalformed(rt, err) }
	s.feed.give(strict)
}
