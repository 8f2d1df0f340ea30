package proxy

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Protocols for ALPN.
var (
	bothVersions = []string{"h2", "http/1.1"}
	// for WebSocket, which net/http does not support over HTTP/2; see also Sandbox.HTTP2
	onlyVersion1 = []string{"http/1.1"}
)

// version1Key in a request's context makes the transport use an HTTP/1.1 connection.
type version1Key struct{}

// secure performs the TLS handshake on a connection to host, and verifies it. It closes c on failure.
func secure(ctx context.Context, c net.Conn, host policy.Host, config *tls.Config, protocols []string,
	wait time.Duration) (net.Conn, error) {
	config = config.Clone()
	config.ServerName, config.NextProtos = host.String(), protocols
	inside := tls.Client(c, config)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := inside.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return inside, nil
}

const minRSABits = 2048 // the minimum of public authorities since 2014; crypto/tls accepts less

// refuseWeakKey refuses keys that can be factored, because the factors impersonate the origin.
func refuseWeakKey(c tls.ConnectionState) error {
	if key, ok := c.PeerCertificates[0].PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSABits {
		return fmt.Errorf("the origin's certificate has an RSA key of %d bits, less than %d", key.N.BitLen(), minRSABits)
	}
	return nil
}

// judge is Sandbox.Decide, or a substitute.
type judge func(context.Context, policy.Request) policy.Verdict

// dial connects to an address of r's host that judge allows, while policy does. Unless known, they are looked up.
func (s *Server) dial(ctx context.Context, r policy.Request, known []netip.Addr, judge judge) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	before := s.flows.changes.Load()
	var mu sync.Mutex
	asked := map[netip.Addr]bool{}
	check := func(a netip.Addr) error {
		r := r
		r.Address = a
		if v := judge(ctx, r); v.Action != policy.Allow {
			return &blocked{r, v}
		}
		mu.Lock()
		defer mu.Unlock()
		asked[a] = true
		return nil
	}
	c, err := s.dialer.Dial(ctx, r.Host, r.Port, known, check)
	if err != nil {
		return nil, At(decision.StageDial, err)
	}
	up := &upstreamConn{Conn: c, server: s, to: destination{r.Host, r.Port}}
	s.early.opened(up.to)
	a, ok := addressOf(c)
	mu.Lock()
	ok = ok && asked[a]
	mu.Unlock()
	if !ok { // an upstream proxy dials
		return up, nil
	}
	r.Address = a
	up.flow = s.flows.add(&flow{request: r, cut: func() { c.Close() }})
	if s.flows.changes.Load() != before { // policy changed before the flow was registered
		if err := check(a); err != nil {
			up.Close()
			return nil, At(decision.StageDial, err)
		}
	}
	return up, nil
}

// Reach reports whether an origin accepts connections now: it connects to r's host as a request does, and closes the
// connection.
func (s *Server) Reach(ctx context.Context, r policy.Request) error {
	c, err := s.dial(ctx, r, nil, s.sandbox.Decide)
	if err != nil {
		return err
	}
	return c.Close()
}

func addressOf(c net.Conn) (netip.Addr, bool) {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return tcp.AddrPort().Addr().Unmap(), true
}

type upstreamConn struct {
	net.Conn
	server *Server
	to     destination
	flow   *flow
	once   sync.Once
}

func (u *upstreamConn) Close() error {
	u.once.Do(func() {
		u.server.flows.remove(u.flow)
		u.server.early.closed(u.to)
	})
	return u.Conn.Close()
}

func (u *upstreamConn) CloseWrite() error { return closeWrite(u.Conn) }
