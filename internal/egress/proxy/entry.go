package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
)

// route holds the facts about a connection beside its bytes.
type route struct {
	entry    Entry
	explicit bool   // requests state their host: absolute form, CONNECT
	self     string // the proxy's own address, if explicit: requests in origin form are for its endpoints
	tls      bool   // intercepted

	host policy.Host // the connection's target; zero if each request states it
	addr netip.Addr  // the address that the sandbox connected to, if it gave one
	port uint16      // 0 if each request states it

	admitted bool // LayerConnect has allowed host and port
}

// protocol returns the protocol of the connection's requests.
func (rt *route) protocol() decision.Protocol {
	if rt.tls {
		return decision.ProtocolHTTPS
	}
	return decision.ProtocolHTTP
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

// transparent serves a connection that the firewall has redirected.
func (s *Server) transparent(c *conn) {
	to, err := s.destination(c.Conn)
	if err != nil { // a connection to the listener itself
		reset(c)
		return
	}
	s.tunnel(c, &route{entry: EntryTransparent, addr: to.Addr().Unmap(), port: to.Port()})
}

func originalDestination(c net.Conn) (netip.AddrPort, error) { return origdst.Of(c.(*net.TCPConn)) }

// explicit serves a client that is configured for the proxy.
func (s *Server) explicit(c *conn) {
	c.SetReadDeadline(time.Now().Add(s.timeouts.Hello))
	if err := c.more(); err != nil {
		c.Close()
		return
	}
	switch c.ahead[0] {
	case socksVersion:
		s.socks(c)
	case 4: // SOCKS4 has no answer with a reason
		c.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
		c.Close()
	default:
		c.SetReadDeadline(time.Time{})
		s.serveHTTP1(c, c, &route{entry: EntryAbsolute, explicit: true, self: c.LocalAddr().String()})
	}
}

// admit asks policy about a connection to host, and registers it to be judged again whenever policy changes.
func (s *Server) admit(c *conn, host policy.Host, port uint16) policy.Verdict {
	s.flows.remove(c.flow)
	request := policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}
	c.flow = s.flows.add(&flow{request: request, cut: func() { c.Conn.Close() }})
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	return s.sandbox.Decide(ctx, request)
}

// forget removes the connection's flow: the connection is no longer for the host it was judged for.
func (s *Server) forget(c *conn) {
	s.flows.remove(c.flow)
	c.flow = nil
}

// candidate returns the best known host of a connection: a name, the name for which DNS returned its address, or the
// address.
func (s *Server) candidate(rt *route) policy.Host {
	if !rt.host.IsZero() {
		return rt.host
	}
	if name, ok := s.sandbox.Pinned(rt.addr); ok {
		return name
	}
	return policy.HostOf(rt.addr)
}

// tunnel serves a connection whose protocol is not known yet.
func (s *Server) tunnel(c *conn, rt *route) {
	c.route = rt
	t := &tunnel{server: s, conn: c, route: rt, began: time.Now(), host: s.candidate(rt)}
	t.verdict = s.admit(c, t.host, rt.port)
	t.serve()
}

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
}

func (t *tunnel) serve() {
	passes := t.passes()
	wait := t.server.timeouts.Hello
	if passes {
		wait = t.server.timeouts.Silence
	}
	t.prepare()
	defer func() { t.early.abandon() }()
	protocol, hello := peek(t.conn, wait)
	t.speaks = protocol.name()
	switch {
	case protocol == protocolTLS:
		t.serveTLS(hello)
	case passes && protocol != protocolBroken:
		t.passThrough(protocol == protocolSilent)
	case protocol == protocolHTTP:
		if t.route.host.IsZero() {
			t.server.forget(t.conn) // each request states its host
		} else {
			t.route.admitted = t.verdict.Action == policy.Allow
		}
		t.server.serveHTTP1(t.conn, t.conn, t.route)
	default:
		if protocol == protocolBroken {
			t.verdict.Passable = false // passing it through would not help
		}
		t.refuse(protocol.problem())
	}
}

// prepare starts the work that a TLS client will need, while the client makes its ClientHello: a certificate and a
// connection to the origin.
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

// portHTTP is the port on which clients do not speak TLS.
const portHTTP = 80

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
	up, err := s.dial(s.ctx, policy.Request{Layer: policy.LayerDial, Host: t.host, Port: t.route.port}, nil, s.decides)
	passage.End(dialFailure(err))
	if err != nil {
		t.verdict = verdictOf(err, t.verdict)
		t.record(stageOf(err, decision.StageDial), err.Error(), 0, 0)
		reset(t.conn)
		return
	}
	look := func() error { return nil }
	if unseen {
		look = t.lookLate
	}
	sent, received, err := splice(t.conn, up, s.timeouts.Idle, look)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	t.record(decision.StageUpstream, problem, sent, received)
}

// dialFailure returns the origin's fault in a dialling error.
func dialFailure(err error) error {
	var refused *blocked
	if errors.As(err, &refused) || errors.Is(err, context.Canceled) {
		return ErrUnfinished
	}
	return err
}

// lookLate judges the first bytes of a client that was silent at first.
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

// socks serves RFC 1928: CONNECT only, by name or address.
func (s *Server) socks(c *conn) {
	rt, reply := readSOCKS(c)
	if rt == nil {
		c.Write(reply)
		c.Close()
		return
	}
	t := &tunnel{server: s, conn: c, route: rt, began: time.Now(), host: s.candidate(rt)}
	c.route = rt
	t.verdict = s.admit(c, t.host, rt.port)
	if t.verdict.Action != policy.Allow {
		t.record(decision.StagePolicy, "", 0, 0)
		c.Write(socksReply(socksNotAllowed))
		c.Close()
		return
	}
	if _, err := c.Write(socksReply(socksGranted)); err != nil {
		c.Close()
		return
	}
	t.serve()
}

const (
	socksVersion = 5

	socksGranted            = 0
	socksNotAllowed         = 2
	socksCommandUnsupported = 7
	socksAddressUnsupported = 8
	socksFailure            = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4
)

func socksReply(code byte) []byte {
	return []byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}

// readSOCKS reads a client's greeting and request, and answers the greeting. Without a route, reply is the final
// answer.
func readSOCKS(c io.ReadWriter) (rt *route, reply []byte) {
	var b [4]byte
	var methods [255]byte
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return nil, nil
	}
	offered := methods[:b[1]]
	if _, err := io.ReadFull(c, offered); err != nil || b[0] != socksVersion {
		return nil, nil
	}
	const noAuthentication, noneAcceptable = 0, 0xff // the listener identifies the sandbox
	accepted := byte(noneAcceptable)
	for _, m := range offered {
		if m == noAuthentication {
			accepted = noAuthentication
		}
	}
	if accepted != noAuthentication {
		return nil, []byte{socksVersion, noneAcceptable}
	}
	if _, err := c.Write([]byte{socksVersion, noAuthentication}); err != nil {
		return nil, nil
	}
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return nil, nil
	}
	if b[0] != socksVersion || b[2] != 0 {
		return nil, socksReply(socksFailure)
	}
	rt, code := readSOCKSAddress(c, b[3])
	switch {
	case b[1] != 1: // BIND, UDP ASSOCIATE
		return nil, socksReply(socksCommandUnsupported)
	case code != socksGranted:
		return nil, socksReply(code)
	}
	return rt, nil
}

func readSOCKSAddress(c io.Reader, kind byte) (*route, byte) {
	var b [256]byte
	size := map[byte]int{socksIPv4: 4, socksIPv6: 16}[kind]
	switch {
	case kind == socksName:
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return nil, socksFailure
		}
		size = int(b[0])
	case size == 0:
		return nil, socksAddressUnsupported
	}
	address, port := b[:size], [2]byte{}
	if _, err := io.ReadFull(c, address); err != nil {
		return nil, socksFailure
	}
	if _, err := io.ReadFull(c, port[:]); err != nil {
		return nil, socksFailure
	}
	rt := &route{entry: EntrySOCKS, port: uint16(port[0])<<8 | uint16(port[1])}
	if rt.port == 0 {
		return nil, socksFailure
	}
	if kind != socksName {
		a, _ := netip.AddrFromSlice(address)
		rt.addr = a.Unmap()
		return rt, socksGranted
	}
	host, err := policy.ParseHost(string(address))
	if err != nil || !isASCII(address) {
		return nil, socksFailure
	}
	rt.bind(host)
	return rt, socksGranted
}

func isASCII(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c >= utf8.RuneSelf })
}

// bind sets the connection's target. An address may still turn out to belong to one of its names.
func (rt *route) bind(host policy.Host) {
	if a, ok := host.Addr(); ok {
		rt.addr = a
	} else {
		rt.host = host
	}
}
