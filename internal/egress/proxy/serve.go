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
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// New returns the proxy of a sandbox. Close ends it.
func New(sandbox Sandbox, o Options) *Server {
	s := &Server{
		sandbox: sandbox, dialer: o.Dialer, timeouts: o.Timeouts.withDefaults(),
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		max: cmp.Or(o.MaxConnections, 1024), requests: make(chan struct{}, cmp.Or(o.MaxRequests, 1024)),
		pace: newPace(o.Bandwidth), destination: originalDestination,
		feed:      &feed{conns: make(chan net.Conn), done: make(chan struct{})},
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
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

		DisableGeneralOptionsHandler: true, // OPTIONS * is refused and recorded like other requests without a path
	}
}

// ServeTransparent accepts connections that the sandbox's firewall has redirected to l, until l fails or Close.
func (s *Server) ServeTransparent(l net.Listener) error { return s.accept(l, s.transparent) }

// ServeExplicit accepts connections of clients configured for the proxy: HTTP and SOCKS5, told apart by the first byte.
func (s *Server) ServeExplicit(l net.Listener) error { return s.accept(l, s.explicit) }

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

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.running.Done()
	c := connOf(r)
	c.carried(meterRequest)
	if r.Method == http.MethodConnect {
		s.serveConnect(w, r, c.route)
		return
	}
	if r.ProtoMajor == 1 {
		defer c.strict.answered.Add(1)
	}
	x := &exchange{server: s, conn: c, route: c.route, w: w, r: r, began: time.Now()}
	x.receive()
	x.run()
	x.finish()
}

// run answers a request and records it.
func (x *exchange) run() {
	defer x.end()
	places := x.server.requests
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
		x.serve()
	default:
		x.refuse(cove.Errorf(cove.Overloaded, "%d requests are under way, and a sandbox may have no more", cap(places)))
	}
}

func (x *exchange) serve() {
	var err error
	if x.target, err = x.route.read(x.r); err != nil {
		x.refuseTarget(err)
		return
	}
	s, request := x.server, x.target.Request
	var ctx context.Context
	ctx, x.cancel = context.WithCancelCause(x.r.Context())
	defer x.cancel(nil)
	f := s.flows.add(&flow{request: request, cut: func() { x.cancel(errCut); x.unblock() }})
	defer s.flows.remove(f)
	x.stage = decision.StagePolicy
	if x.verdict = s.judge(ctx, x.route, request); x.verdict.Action != policy.Allow {
		x.block()
		return
	}
	if request.Host.Name() == policy.GatewayService {
		x.serveEndpoint(ctx)
		return
	}
	x.origin = x.target
	if !x.route.explicit && x.route.host.IsZero() && x.r.ProtoMajor == 1 {
		x.route.host = x.target.Host // requests on one connection are sequential and for one host
	}
	x.forward(ctx, s.sandbox.Prepare)
}

// serveConnect opens a tunnel for a client that is configured for the proxy.
func (s *Server) serveConnect(w http.ResponseWriter, r *http.Request, rt *route) {
	x := &exchange{server: s, conn: connOf(r), route: &route{entry: EntryConnect, explicit: true}, w: w, r: r,
		began: time.Now()}
	x.target.Request = policy.Request{Layer: policy.LayerConnect}
	w.Header()["Connection"] = []string{"close"} // after CONNECT the bytes are not HTTP, whatever the answer
	taken := false
	defer func() {
		if x.conn.strict != nil && !taken {
			x.conn.strict.end()
		}
	}()
	if !rt.explicit || r.ProtoMajor != 1 {
		x.stage = decision.StageProtocol
		x.verdict = policy.Verdict{Rule: ruleProtocol, Reason: "CONNECT inside a connection to an origin"}
		x.block()
		x.record()
		return
	}
	host, port, err := policy.ParseAuthority(r.RequestURI, 0)
	if err != nil {
		x.refuseTarget(err)
		x.record()
		return
	}
	c := x.conn
	inner := &route{entry: EntryConnect, port: port}
	inner.bind(host)
	t := s.newTunnel(c, inner, x.began)
	x.target.Host, x.target.Port, x.verdict = t.host, port, t.verdict
	if t.verdict.Action != policy.Allow && !s.explains(host, port) {
		s.forget(c)
		x.stage = decision.StagePolicy
		x.block()
		x.record()
		return
	}
	taken = true
	if !t.hijack(w) {
		return
	}
	c.route = inner
	t.serve()
}

// hijack takes the connection from the HTTP server and tells the client that the tunnel is open.
func (t *tunnel) hijack(w http.ResponseWriter) bool {
	taken, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.conn.Close()
		return false
	}
	taken.SetDeadline(time.Time{})
	ahead, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	t.conn.ahead = append(append([]byte(nil), ahead...), t.conn.ahead...)
	if _, err := io.WriteString(t.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		t.conn.Close()
		return false
	}
	return true
}

// newTransport returns the transport for a sandbox's connections to origins. Connections are kept by scheme, host and
// port, and never shared between hosts, HTTP/2 included. Those for endpoints are judged differently and kept apart.
func (s *Server) newTransport(roots *x509.CertPool, endpoint bool) *http.Transport {
	config := &tls.Config{
		RootCAs:            roots,
		MinVersion:         tls.VersionTLS12,
		VerifyConnection:   refuseWeakKey,
		ClientSessionCache: tls.NewLRUClientSessionCache(64),
	}
	to := func(address string) (policy.Request, error) {
		host, port, err := policy.ParseAuthority(address, 0)
		return policy.Request{Layer: policy.LayerDial, Host: host, Port: port, Endpoint: endpoint}, err
	}
	if !endpoint {
		s.early = newEarly(s, config)
	}
	return &http.Transport{
		Proxy: nil, // ignore the environment
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			r, err := to(address)
			if err != nil {
				return nil, err
			}
			return s.dial(ctx, r, nil, s.sandbox.Decide)
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			r, err := to(address)
			if err != nil {
				return nil, err
			}
			protocols := bothVersions
			switch {
			case ctx.Value(version1Key{}) != nil:
				protocols = onlyVersion1
			case !endpoint:
				if c, err := s.early.take(ctx, destination{r.Host, r.Port}); c != nil || err != nil {
					return c, err
				}
			}
			c, err := s.dial(ctx, r, nil, s.sandbox.Decide)
			if err != nil {
				return nil, err
			}
			return secure(ctx, c, r.Host, config, protocols, s.timeouts.Hello)
		},
		DisableCompression:     true, // the client negotiates compression
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        s.timeouts.KeepAlive,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: s.timeouts.Idle,
		},
	}
}
