package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// early makes connections to origins that will be asked for, so that the origin's
// handshake goes on beside the client's. It connects when policy has allowed a
// connection of the sandbox's, and says nothing before the client's ClientHello
// has said the same name. Sandbox.Early has to agree, so that nothing reaches an
// origin that may not be asked for everything; and no more than a handshake
// does, since requests are judged as ever.
//
// One is begun where there is no connection to the host and port, which could be
// used again. It waits earlyLife for its request, and none uses it once the
// policy has changed.
type early struct {
	server *Server
	config *tls.Config

	mu    sync.Mutex
	begun map[destination]*earlyConn // guarded by mu; until they are taken or have ended
	open  map[destination]int        // guarded by mu; all connections there are
}

// destination is who a connection is for.
type destination struct {
	host policy.Host
	port uint16
}

const (
	earlyLife = 5 * time.Second // shorter than origins wait for a first request
	maxEarly  = 16              // of a sandbox at a time
)

func newEarly(s *Server, config *tls.Config) *early {
	return &early{server: s, config: config, begun: map[destination]*earlyConn{}, open: map[destination]int{}}
}

// earlyConn is a connection that is being made. Nil is none.
type earlyConn struct {
	to      destination
	changes int                // of policy, when it was begun
	cancel  context.CancelFunc // ends the making of it
	spoken  sync.Once          // closes speak
	speak   chan struct{}      // closed when a client has named the origin in its handshake
	made    chan earlyResult   // without room: who made it closes what nobody takes
	ended   chan struct{}      // closed when nothing will be made any more
}

type earlyResult struct {
	conn net.Conn
	err  error
}

// begin connects to an origin if that is the sandbox's to have without asking
// for anything yet. Where the sandbox has asked for the name, what it was told is
// where the name is. Whoever has begun calls proceed or abandon.
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
			return // whoever asks will hear why, or wait for somebody's word
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

// proceed: a client has spoken as expected.
func (c *earlyConn) proceed() {
	if c != nil {
		c.spoken.Do(func() { close(c.speak) })
	}
}

// abandon: the client is not what it was expected to be. It does nothing
// after proceed, or when somebody else has taken the connection.
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
	// Both sides may take their time.
	return secure(ctx, &patientWriter{conn, ctx, c.speak}, r.Host, e.config, bothVersions, 2*e.server.timeouts.Hello)
}

// judge allows what nobody has to be asked about.
func (e *early) judge(_ context.Context, r policy.Request) policy.Verdict {
	if e.server.sandbox.Early(r) {
		return policy.Verdict{Action: policy.Allow}
	}
	return policy.Verdict{Reason: "it is not connected to before it is asked for"}
}

// patientWriter writes nothing before it may.
type patientWriter struct {
	net.Conn
	ctx   context.Context // of the handshake
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
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

// add notes that one is being made, unless there is another or there are too many.
func (e *early) add(to destination) (*earlyConn, context.Context) {
	c := &earlyConn{to: to, changes: e.server.flows.changes(), speak: make(chan struct{}), made: make(chan earlyResult), ended: make(chan struct{})}
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

// end forgets a connection that has been given away or will not be made.
func (e *early) end(c *earlyConn) {
	c.cancel()
	close(c.ended)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun[c.to] == c {
		delete(e.begun, c.to)
	}
}

// opened counts a connection to an origin.
func (e *early) opened(to destination) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[to]++
}

func (e *early) closed(to destination) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[to]--; e.open[to] == 0 {
		delete(e.open, to)
	}
}

// take waits for the connection that has been begun to an origin, whoever it was
// begun for: this one's client has spoken. It is nil if there is none, or none
// that can be used.
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
		if e.server.flows.changes() == c.changes {
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
