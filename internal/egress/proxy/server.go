package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

// Options of a Server. The zero value of each field except Dialer means its default.
type Options struct {
	Dialer         Dialer
	Roots          *x509.CertPool // trusted for origins; the host's own by default
	MaxConnections int            // of the sandbox at a time; 1024
	MaxRequests    int            // of the sandbox at a time, WebSockets too; 1024
	Bandwidth      int64          // bytes per second of the sandbox, in each direction; no limit
	Timeouts       Timeouts
	Log            *slog.Logger // defects only; activity of sandboxes goes to Record
}

// Timeouts bound every wait.
type Timeouts struct {
	Hello     time.Duration // for the first bytes of a connection, and for a TLS handshake; 15 s
	Silence   time.Duration // silence after which a passed-through client is assumed to wait for the server; 500 ms
	Header    time.Duration // for the head of a request; 30 s
	KeepAlive time.Duration // between requests, on both sides; 2 min
	Idle      time.Duration // without a byte in either direction; 10 min
	Leaving   time.Duration // for answers to an HTTP/1 client that has half-closed, and its own last bytes; 10 s
}

func (t Timeouts) withDefaults() Timeouts {
	t.Hello = cmp.Or(t.Hello, 15*time.Second)
	t.Silence = cmp.Or(t.Silence, 500*time.Millisecond)
	t.Header = cmp.Or(t.Header, 30*time.Second)
	t.KeepAlive = cmp.Or(t.KeepAlive, 2*time.Minute)
	t.Idle = cmp.Or(t.Idle, 10*time.Minute)
	t.Leaving = cmp.Or(t.Leaving, 10*time.Second)
	return t
}

// Server is the proxy of one sandbox.
type Server struct {
	sandbox  Sandbox
	dialer   Dialer
	timeouts Timeouts
	log      *slog.Logger
	max      int           // connections
	requests chan struct{} // one place for each request
	pace     *pace

	destination func(net.Conn) (netip.AddrPort, error) // original destination of a redirected connection

	http      *http.Server    // reads requests, HTTP/1 and HTTP/2
	feed      *feed           // its listener
	transport *http.Transport // the sandbox's own connections to origins
	behind    *http.Transport // the gateway's connections for endpoints
	early     *early          // connections started ahead of requests
	flows     flows

	ctx     context.Context // ends with Shut
	cancel  context.CancelFunc
	running sync.WaitGroup // everything started by connections
	waiting sync.WaitGroup // for connections

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{} // from the sandbox
}

func (s *Server) recovered() {
	if p := recover(); p != nil {
		s.log.Error("proxy: panic", "sandbox", s.sandbox.ID(), "panic", p)
	}
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	s.waiting.Add(1)
	return true
}

// addConn registers a connection for Shut to wait for; it refuses after Shut.
func (s *Server) addConn(c net.Conn) (*conn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.max {
		return nil, false
	}
	client := &conn{Conn: s.pace.of(c), server: s}
	s.conns[client] = struct{}{}
	s.running.Add(1)
	return client, true
}

func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// enter registers a request for Shut to wait for; it refuses after Shut.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// Connections returns the number of open connections of the sandbox.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Rejudge cuts everything that judge no longer allows. judge must not wait; Ask counts as refused.
func (s *Server) Rejudge(judge func(policy.Request) policy.Verdict) (cut int) {
	return s.flows.rejudge(judge)
}

// conn is a connection from the sandbox. Bytes read for detection are read again.
type conn struct {
	net.Conn
	server *Server
	ahead  []byte      // read already
	meter  *meter      // of HTTP/2
	strict *strictConn // of HTTP/1
	route  *route
	flow   *flow // the flow that Rejudge can cut
	once   sync.Once
}

// strictConn passes only validated bytes to Go's HTTP/1 server.
type strictConn struct {
	net.Conn
	framing framing
	refused error
	off     bool // the bytes that follow are not HTTP; set only after the server has given the connection up
	onError func(error)

	answered atomic.Int64 // answered requests
	ended    atomic.Bool  // the server reads no more; see end
	leaving  sync.Once
	outer    *conn // see serveHTTP1; nil for Strict
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if c.meter != nil && !c.meter.allows(n, time.Now) {
		return 0, errIdleTalk
	}
	return n, err
}

func (c *conn) carried(n int) {
	if c.meter != nil {
		c.meter.useful.Add(int64(n))
	}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.server.removeConn(c)
		c.server.flows.remove(c.flow)
	})
	return c.Conn.Close()
}

func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// reset ends a connection with an error for the other side.
func reset(c net.Conn) {
	inner := c
	if client, ok := c.(*conn); ok {
		inner = client.Conn
	}
	switch own := unpaced(inner).(type) {
	case *net.TCPConn:
		own.SetLinger(0)
	case *relayed.Conn:
		own.Break()
	}
	c.Close()
}

// feed is a listener of connections from the entry points.
type feed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (f *feed) give(c net.Conn) {
	select {
	case f.conns <- c:
	case <-f.done:
		c.Close()
	}
}

func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

func (f *feed) Addr() net.Addr { return &net.TCPAddr{} }

// early makes connections to origins ahead of their requests, so that the origin's handshake runs in parallel with the
// client's. It connects after policy has allowed the sandbox's connection, and sends nothing before the client's
// ClientHello has named the same host. Sandbox.Early must agree, so that only an origin that may receive every request
// gets a connection, and it gets no more than a handshake, since requests are judged as always.
//
// An early connection is started if there is no reusable connection to the host and port. It waits earlyLife for its
// request, and is not used after a change of policy.
type early struct {
	server *Server
	config *tls.Config

	mu    sync.Mutex
	begun map[destination]*earlyConn // guarded by mu; until taken or ended
	open  map[destination]int        // guarded by mu; all connections to the origin
}

type destination struct {
	host policy.Host
	port uint16
}

// earlyConn is a connection in the making. Nil means none.
type earlyConn struct {
	to      destination
	changes int64              // count of policy changes at the start
	cancel  context.CancelFunc // ends the attempt
	spoken  sync.Once          // closes speak
	speak   chan struct{}      // closed when a client has named the origin in its handshake
	made    chan earlyResult   // unbuffered: the maker closes a connection that is not taken
	ended   chan struct{}      // closed when no connection will be made any more
}

type earlyResult struct {
	conn net.Conn
	err  error
}

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

type connKey struct{}

// withConn stores the sandbox's connection in its requests' context.
func withConn(ctx context.Context, c net.Conn) context.Context {
	for {
		switch inner := c.(type) {
		case *conn:
			return context.WithValue(ctx, connKey{}, inner)
		case interface{ NetConn() net.Conn }: // *strictConn, *patientConn, *tls.Conn
			c = inner.NetConn()
		default:
			panic("a connection that did not come through an entry")
		}
	}
}

func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }

// meter ends an HTTP/2 connection with much traffic and next to no payload: PING, SETTINGS, PRIORITY, empty
// CONTINUATION or DATA and the like cost the gateway work, if little memory.
type meter struct {
	useful atomic.Int64 // bytes of heads and bodies, both ways

	since    time.Time // start of the period; owned by the reader
	received int64     // bytes on the wire
	before   int64     // useful at the start of the period
}

const (
	meterFree    = 4 << 20 // bytes a minute without payload
	meterFactor  = 32      // bytes per payload byte: small messages have large frames
	meterRequest = 4 << 10 // payload credit of a request, whatever its head
)

var errIdleTalk = errors.New("an HTTP/2 connection that carries next to nothing")

// allows counts n received bytes and reports whether the connection may go on.
func (m *meter) allows(n int, now func() time.Time) bool {
	m.received += int64(n)
	useful := m.useful.Load()
	if m.received <= meterFree+meterFactor*(useful-m.before) {
		return true
	}
	at := now()
	if at.Sub(m.since) < time.Minute {
		return false
	}
	m.since, m.received, m.before = at, 0, useful
	return true
}
