package proxy

import (
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
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Sandbox is what the proxy needs to know of whose connections it serves.
type Sandbox interface {
	ID() cove.SandboxID
	// Decide judges a request. It may wait for somebody to approve, until ctx
	// ends, and never answers Ask.
	Decide(ctx context.Context, r policy.Request) policy.Verdict
	// Early reports whether what a request will need may be begun before there is
	// one. With LayerConnect: whatever is asked in the connection would be allowed,
	// and one more connection to the origin is within all bounds; it is counted.
	// With LayerDial: Decide would allow it, without anybody's word.
	Early(r policy.Request) bool
	// Pinned is the name that the sandbox's DNS gave an address out for.
	Pinned(a netip.Addr) (policy.Host, bool)
	// Found are the addresses that have just been looked up for a question of the
	// sandbox's, given out once: for the connection that it asked for. None if
	// there are none. They are judged when they are dialled, like any.
	Found(name policy.Host) []netip.Addr
	// Leaf is a certificate for a host that convinces this sandbox alone.
	Leaf(host policy.Host) (*tls.Certificate, error)
	// HTTP2 reports whether clients are offered HTTP/2 for a host.
	HTTP2(host policy.Host) bool
	// Endpoint says what becomes of a request to the gateway's own name
	// (policy.GatewayService), which Decide has allowed: either it is sent on to
	// another place, in which case h may have been changed, or it is answered.
	// Where it is sent on to is judged at every layer, as a policy.Request with
	// Endpoint set.
	Endpoint(r policy.Request, h *http.Request) (*Origin, *Answer)
	// Prepare admits an allowed request and changes it on its way out: it may
	// limit rates, judge a body (which it then replaces), strip and set
	// credentials. A *Refusal is the answer, and so is an *Answer, and an error
	// with a code of cove; At says of which stage it is. A connection that is
	// passed through is admitted in the same way, without h.
	Prepare(r policy.Request, h *http.Request) (Passage, error)
	// Record is told of every decision that ended something: a refused
	// connection or request, an answered request, a closed tunnel.
	Record(e Event)
}

// Origin is what is behind an endpoint.
type Origin struct {
	URL     *url.URL                                                 // without a query: that of the request is sent
	Prepare func(r policy.Request, h *http.Request) (Passage, error) // in place of the sandbox's
}

// Passage is one request on its way to the origin and back.
type Passage interface {
	// Response changes the answer on its way in. Whoever replaces the body with
	// one of another length sets ContentLength to -1.
	Response(h *http.Response) error
	// End is called once and last; for a connection that is passed through when
	// there is one to the origin. failure is what the origin did wrong: it could
	// not be reached, did not answer, or broke off; nil if nothing, and
	// ErrUnfinished when something else ended it before the origin answered.
	End(failure error)
}

// ErrUnfinished says that nothing can be said about an origin: the sandbox or a
// change of policy ended what was asked of it.
var ErrUnfinished = errors.New("it was ended before the origin answered")

// Dialer resolves a host, unless its addresses are known, and connects to it. It
// calls check with every address before it connects to one, resolves once, and
// connects to nothing that check has refused. See Direct.
type Dialer interface {
	Dial(ctx context.Context, host policy.Host, port uint16, known []netip.Addr, check func(netip.Addr) error) (net.Conn, error)
}

// Entry is the way a connection came in.
type Entry = api.Entry

const (
	EntryTransparent Entry = "transparent"
	EntryConnect     Entry = "connect"
	EntryAbsolute    Entry = "absolute-form"
	EntrySOCKS       Entry = "socks5"
)

// Event is one decision and what came of it.
type Event struct {
	Time     time.Time // when it began
	Duration time.Duration
	Entry    Entry
	Protocol api.Protocol // empty where it was not seen
	Stage    api.Stage    // how far it came
	Request  policy.Request
	Verdict  policy.Verdict
	Status   int    // of the HTTP answer; 0 where there was none
	Sent     int64  // bytes from the sandbox, bodies only for HTTP
	Received int64  // bytes to the sandbox, bodies only for HTTP
	Problem  string // what went wrong, or was malformed; empty if nothing
}

// Options of a Server. The zero value of each but Dialer means its default.
type Options struct {
	Dialer         Dialer
	Roots          *x509.CertPool // who vouches for origins; the host's own by default
	MaxConnections int            // of the sandbox at a time; 1024
	MaxRequests    int            // of the sandbox at a time, WebSockets too; 1024
	Timeouts       Timeouts
	Log            *slog.Logger // defects only; what sandboxes do goes to Record
}

// Timeouts bound every wait.
type Timeouts struct {
	Hello     time.Duration // for the first bytes of a connection, and for a TLS handshake; 15 s
	Silence   time.Duration // after which a client of a passed-through connection waits for the server to speak; 500 ms
	Header    time.Duration // for the head of a request; 30 s
	KeepAlive time.Duration // between requests, on both sides; 2 min
	Idle      time.Duration // without a byte in either direction; 10 min
	Leaving   time.Duration // for answers to a client that has ended its side of an HTTP/1 connection; 10 s
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
	requests chan struct{} // a place for each request

	destination func(net.Conn) (netip.AddrPort, error) // where the firewall turned a connection away from

	http      *http.Server    // reads requests, HTTP/1 and HTTP/2
	feed      *feed           // hands it connections
	transport *http.Transport // the sandbox's own connections to origins
	behind    *http.Transport // and those that the gateway makes for its endpoints
	early     *early          // those that are begun before they are asked for
	flows     flows

	ctx     context.Context // ends with Shut
	cancel  context.CancelFunc
	running sync.WaitGroup // everything that connections have begun
	waiting sync.WaitGroup // for connections

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{} // from the sandbox
}

// New makes the proxy of a sandbox. Close ends it.
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
	if s.max == 0 {
		s.max = defaultMaxConnections
	}
	if o.MaxRequests == 0 {
		o.MaxRequests = defaultMaxRequests
	}
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
		ErrorLog:          log.New(io.Discard, "", 0), // what clients do wrong, in their words
		Protocols:         &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, SendPingTimeout: s.timeouts.KeepAlive, WriteByteTimeout: s.timeouts.Idle,
			MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10,
			MaxReadFrameSize: 16 << 10, // a frame is held whole, and has to fit into the stream's buffer
		},
	}
}

// RoundTrip sends a request of the gateway's own to an origin, over connections
// that are judged as those of the sandbox's requests are. Whoever sends it has
// asked policy.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) { return s.transport.RoundTrip(r) }

// ServeTransparent takes connections that the sandbox's firewall has turned to
// l, until l fails or Close.
func (s *Server) ServeTransparent(l net.Listener) error { return s.accept(l, s.transparent) }

// ServeExplicit takes connections of clients that know of the proxy: HTTP and
// SOCKS5, told apart by their first byte.
func (s *Server) ServeExplicit(l net.Listener) error { return s.accept(l, s.explicit) }

// accept gives every connection a goroutine.
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
			select { // out of descriptors: others will give some back
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

// recovered keeps a defect in the handling of one connection from ending the
// others.
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

// addConn counts a connection in, for Shut to wait for; not after Shut.
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

// enter counts a request in, for Shut to wait for; not after Shut.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// Connections counts those that the sandbox has open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Rejudge cuts whatever judge no longer allows. judge must not wait; Ask counts
// as refused.
func (s *Server) Rejudge(judge func(policy.Request) policy.Verdict) (cut int) {
	return s.flows.rejudge(judge)
}

// Shut ends every connection, waits for everything that was begun, and turns
// away whoever connects from now on. It may be called again.
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

// conn is a connection from the sandbox. What has been read of it to find out
// what it is will be read again.
type conn struct {
	net.Conn
	server *Server
	ahead  []byte      // read already
	meter  *meter      // of HTTP/2
	strict *strictConn // of HTTP/1
	route  *route
	flow   *flow // as which it can be cut
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

// carried counts bytes of a message.
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

// reset ends a connection so that the other side hears of it as an error.
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

// feed is a listener whose connections come from the entry points.
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
