package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Sandbox is the proxy's view of the sandbox that it serves.
type Sandbox interface {
	ID() cove.SandboxID
	// Decide judges a request. It may wait for an approval until ctx ends, and never returns Ask.
	Decide(ctx context.Context, r policy.Request) policy.Verdict
	// Early reports whether preparations for a request may start before it. With LayerConnect: every request in the
	// connection would be allowed, and one more connection to the origin is within all bounds; it is counted. With
	// LayerDial: Decide would allow it without an approval.
	Early(r policy.Request) bool
	// Pinned returns the name for which the sandbox's DNS returned an address.
	Pinned(a netip.Addr) (policy.Host, bool)
	// Found returns the addresses of a recent DNS query of the sandbox, once, for the connection that follows it; or none.
	// They are judged like any when dialled.
	Found(name policy.Host) []netip.Addr
	// Leaf returns a certificate for a host that only this sandbox trusts.
	Leaf(host policy.Host) (*tls.Certificate, error)
	// HTTP2 reports whether clients are offered HTTP/2 for a host.
	HTTP2(host policy.Host) bool
	// Endpoint handles a request to the gateway's own name (policy.GatewayService) that Decide has allowed: the request is
	// forwarded to another origin, with h possibly changed, or it is answered. The forwarded request is judged at every
	// layer, as a policy.Request with Endpoint set.
	Endpoint(r policy.Request, h *http.Request) (*Origin, *Answer)
	// Prepare admits an allowed request and changes it on its way out: it may limit rates, judge a body (which it then
	// replaces), remove and set credentials. An error is the answer: a *Refusal, an *Answer, or an error with a code of
	// cove; At adds its stage. A passed-through connection is admitted in the same way, without h.
	Prepare(r policy.Request, h *http.Request) (Passage, error)
	// Record receives every final decision: a refused connection or request, an answered request, a closed tunnel.
	Record(e Event)
}

// Origin is the origin behind an endpoint.
type Origin struct {
	URL     *url.URL                                                 // without a query: the request's query is used
	Prepare func(r policy.Request, h *http.Request) (Passage, error) // in place of Sandbox.Prepare
}

// Passage is one request on its way to the origin and back.
type Passage interface {
	// Response changes the answer on its way in. An implementation that replaces the body with one of another length sets
	// ContentLength to -1.
	Response(h *http.Response) error
	// End is called once and last; for a passed-through connection, once the origin is connected. failure is the origin's
	// fault: it was unreachable, did not answer, or broke off. It is nil without a fault, and ErrUnfinished when another
	// cause ended the request before the origin answered.
	End(failure error)
}

// ErrUnfinished reports that an origin was not tested: the sandbox or a change of policy ended the request.
var ErrUnfinished = errors.New("it was ended before the origin answered")

// Dialer resolves a host, unless its addresses are known, and connects to it. It resolves once, calls check with every
// address, and connects to no address that check has refused. See Direct.
type Dialer interface {
	Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr,
		check func(netip.Addr) error) (net.Conn, error)
}

// Entry is the kind of entry point of a connection.
type Entry = decision.Entry

const (
	EntryTransparent Entry = "transparent"
	EntryConnect     Entry = "connect"
	EntryAbsolute    Entry = "absolute-form"
	EntrySOCKS       Entry = "socks5"
)

// Event is one decision and its outcome.
type Event struct {
	Time     time.Time // start
	Duration time.Duration
	Entry    Entry
	Protocol decision.Protocol // empty if unknown
	Stage    decision.Stage    // the stage it reached
	Request  policy.Request
	Verdict  policy.Verdict
	Status   int    // of the HTTP answer; 0 if there was none
	Sent     int64  // bytes from the sandbox, bodies only for HTTP
	Received int64  // bytes to the sandbox, bodies only for HTTP
	Problem  string // what went wrong, or was malformed; empty if nothing
}

// Options of a Server. The zero value of each field except Dialer means its default.
type Options struct {
	Dialer         Dialer
	Roots          *x509.CertPool // trusted for origins; the host's own by default
	MaxConnections int            // of the sandbox at a time; 1024
	MaxRequests    int            // of the sandbox at a time, WebSockets too; 1024
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
	Leaving   time.Duration // for answers to a client that has half-closed an HTTP/1 connection; 10 s
}

func (t Timeouts) withDefaults() Timeouts {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Hello, 15 * time.Second}, {&t.Silence, 500 * time.Millisecond}, {&t.Header, 30 * time.Second},
		{&t.KeepAlive, 2 * time.Minute}, {&t.Idle, 10 * time.Minute}, {&t.Leaving, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return t
}

const (
	defaultMaxConnections = 1024
	defaultMaxRequests    = 1024
)

// Server is the proxy of one sandbox.
type Server struct {
	sandbox  Sandbox
	dialer   Dialer
	timeouts Timeouts
	log      *slog.Logger
	max      int           // connections
	requests chan struct{} // one place for each request

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

// New returns the proxy of a sandbox. Close ends it.
func New(sandbox Sandbox, o Options) *Server {
	s := &Server{
		sandbox: sandbox, dialer: o.Dialer, timeouts: o.Timeouts.withDefaults(), log: o.Log, max: o.MaxConnections,
		destination: originalDestination,
		feed:        newFeed(),
		listeners:   map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.max = cmp.Or(s.max, defaultMaxConnections)
	o.MaxRequests = cmp.Or(o.MaxRequests, defaultMaxRequests)
	s.requests = make(chan struct{}, o.MaxRequests)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.transport = s.newTransport(o.Roots, false)
	s.behind = s.newTransport(o.Roots, true)
	s.http = s.newHTTPServer()
	s.waiting.Go(func() { s.http.Serve(s.feed) })
	return s
}

func (s *Server) newHTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ConnContext:       withConn,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ReadHeaderTimeout: s.timeouts.Header,
		IdleTimeout:       s.timeouts.KeepAlive,
		MaxHeaderBytes:    maxHeadBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // protocol errors of clients, in their words
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, SendPingTimeout: s.timeouts.KeepAlive, WriteByteTimeout: s.timeouts.Idle,
			MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10,
			MaxReadFrameSize: 16 << 10, // a frame is held whole, and must fit into the stream's buffer
		},
	}
}

// ServeTransparent accepts connections that the sandbox's firewall has redirected to l, until l fails or Close.
func (s *Server) ServeTransparent(l net.Listener) error { return s.accept(l, s.transparent) }

// ServeExplicit accepts connections of clients that are configured for the proxy: HTTP and SOCKS5, distinguished by
// their first byte.
func (s *Server) ServeExplicit(l net.Listener) error { return s.accept(l, s.explicit) }

// accept serves every connection in a goroutine.
func (s *Server) accept(l net.Listener, serve func(*conn)) error {
	if !s.addListener(l) {
		l.Close()
		return net.ErrClosed
	}
	defer s.waiting.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return net.ErrClosed
			}
			if !isTemporary(err) {
				return err
			}
			select { // out of descriptors: wait until others are closed
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		client, ok := s.addConn(c)
		if !ok {
			reset(c)
			continue
		}
		go func() {
			defer s.running.Done()
			defer s.recovered()
			serve(client)
		}()
	}
}

func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// recovered confines a panic to one connection.
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
	client := &conn{Conn: c, server: s}
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

// Shut ends every connection, waits for all started work, and refuses later connections. It may be called again.
func (s *Server) Shut() {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = map[*conn]struct{}{}
	s.mu.Unlock()

	s.cancel()
	s.http.Close()
	for c := range conns {
		c.Conn.Close()
	}
	s.flows.cutAll()
	s.running.Wait()
}

// Close shuts the proxy and closes its listeners, which takes longer.
func (s *Server) Close() error {
	s.Shut()
	s.mu.Lock()
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	s.waiting.Wait()
	s.transport.CloseIdleConnections()
	s.behind.CloseIdleConnections()
	return nil
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

// carried counts payload bytes.
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

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// reset ends a connection with an error for the other side.
func reset(c net.Conn) {
	inner := c
	if client, ok := c.(*conn); ok {
		inner = client.Conn
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

// feed is a listener of connections from the entry points.
type feed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newFeed() *feed { return &feed{conns: make(chan net.Conn), done: make(chan struct{})} }

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
