package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const (
	earlyLife = 5 * time.Second // shorter than origins wait for a first request
	maxEarly  = 16              // of a sandbox at a time
)

func newEarly(s *Server, config *tls.Config) *early {
	return &early{server: s, config: config, begun: map[destination]*earlyConn{}, open: map[destination]int{}}
}

// begin connects to an origin if policy allows it without a request. If the sandbox has looked the name up, the
// addresses of that look-up are used. The caller must call proceed or abandon.
func (e *early) begin(host policy.Host, port uint16, asked bool) *earlyConn {
	s := e.server
	c, ctx := e.add(destination{host, port})
	if c == nil {
		return nil
	}
	if !s.sandbox.Early(policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}) {
		e.end(c)
		return nil
	}
	s.running.Go(func() {
		defer s.recovered()
		defer e.end(c)
		conn, err := e.make(ctx, c, asked)
		if refused := (*blocked)(nil); errors.As(err, &refused) || err != nil && ctx.Err() != nil {
			return // the request gets the reason, or waits for an approval
		}
		late := time.NewTimer(earlyLife)
		defer late.Stop()
		select {
		case c.made <- earlyResult{conn, err}:
			return
		case <-late.C:
		case <-ctx.Done():
		}
		if err == nil {
			conn.Close()
		}
	})
	return c
}

// proceed releases the handshake: the client has named the expected host.
func (c *earlyConn) proceed() {
	if c != nil {
		c.spoken.Do(func() { close(c.speak) })
	}
}

// abandon ends the attempt, for a client that turned out different, unless proceed was called or the connection taken.
func (c *earlyConn) abandon() {
	if c == nil {
		return
	}
	select {
	case <-c.speak:
	default:
		c.cancel()
	}
}

func (e *early) make(ctx context.Context, c *earlyConn, asked bool) (net.Conn, error) {
	var known []netip.Addr
	if asked {
		known = e.server.sandbox.Found(c.to.host)
	}
	r := policy.Request{Layer: policy.LayerDial, Host: c.to.host, Port: c.to.port}
	conn, err := e.server.dial(ctx, r, known, e.judge)
	if err != nil {
		return nil, err
	}
	// Client and origin may both be slow.
	return secure(ctx, &patientWriter{conn, ctx.Done(), c.speak}, r.Host, e.config, bothVersions,
		2*e.server.timeouts.Hello)
}

// judge allows only what needs no approval.
func (e *early) judge(_ context.Context, r policy.Request) policy.Verdict {
	if e.server.sandbox.Early(r) {
		return policy.Verdict{Action: policy.Allow}
	}
	return policy.Verdict{Reason: "it is not connected to before it is asked for"}
}

type patientWriter struct {
	net.Conn
	ended <-chan struct{} // with the context of the handshake, which returns the error
	speak <-chan struct{}
}

func (p *patientWriter) Write(b []byte) (int, error) {
	select {
	case <-p.speak:
		return p.Conn.Write(b)
	default:
	}
	select {
	case <-p.speak:
		return p.Conn.Write(b)
	case <-p.ended:
		return 0, net.ErrClosed
	}
}

// add registers an attempt, unless there is another or there are too many.
func (e *early) add(to destination) (*earlyConn, context.Context) {
	c := &earlyConn{to: to, changes: e.server.flows.changes.Load(), speak: make(chan struct{}),
		made: make(chan earlyResult), ended: make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[to] > 0 || e.begun[to] != nil || len(e.begun) >= maxEarly {
		return nil, nil
	}
	e.begun[to] = c
	ctx, cancel := context.WithCancel(e.server.ctx)
	c.cancel = cancel
	return c, ctx
}

// end removes a connection that has been taken or will not be made.
func (e *early) end(c *earlyConn) {
	c.cancel()
	close(c.ended)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun[c.to] == c {
		delete(e.begun, c.to)
	}
}

// take waits for the early connection to an origin, whichever client caused it; this request's client has named the
// host. It returns nil if there is no usable one.
func (e *early) take(ctx context.Context, to destination) (net.Conn, error) {
	e.mu.Lock()
	c := e.begun[to]
	delete(e.begun, to)
	e.mu.Unlock()
	if c == nil {
		return nil, nil
	}
	c.proceed()
	select {
	case got := <-c.made:
		if e.server.flows.changes.Load() == c.changes {
			return got.conn, got.err
		}
		if got.err == nil {
			got.conn.Close()
		}
	case <-c.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}
