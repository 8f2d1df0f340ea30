package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
)

// transparent serves a connection that the firewall has redirected.
func (s *Server) transparent(c *conn) {
	to, err := s.destination(unpaced(c.Conn))
	if err != nil { // a connection to the listener itself
		reset(c)
		return
	}
	c.route = &route{entry: EntryTransparent, addr: to.Addr().Unmap(), port: to.Port()}
	s.newTunnel(c, c.route, time.Now()).serve()
}

func originalDestination(c net.Conn) (netip.AddrPort, error) {
	r, ok := c.(*relayed.Conn)
	if !ok {
		return origdst.Of(c.(*net.TCPConn))
	}
	if to := r.Destination(); to.IsValid() {
		return to, nil
	}
	return netip.AddrPort{}, errors.New("it was not redirected")
}

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

// serve serves a connection whose protocol is not known yet.
func (t *tunnel) serve() {
	passes := t.passes()
	if passes && t.verdict.Neighbour { // of which the name says all: either side may speak first, in any protocol
		t.passThrough(false)
		return
	}
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

// socks serves RFC 1928: CONNECT only, by name or address.
func (s *Server) socks(c *conn) {
	rt, reply := readSOCKS(c)
	if rt == nil {
		c.Write(reply)
		c.Close()
		return
	}
	c.route = rt
	t := s.newTunnel(c, rt, time.Now())
	if t.verdict.Action != policy.Allow && !s.explains(t.host, rt.port) {
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
	socksVersion            = 5
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

// readSOCKS reads a client's greeting and request, and answers the greeting. Without a route, reply ends it.
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
	if !slices.Contains(offered, noAuthentication) {
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
	var b [255 + 2]byte
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
	if _, err := io.ReadFull(c, b[:size+2]); err != nil {
		return nil, socksFailure
	}
	address := b[:size]
	rt := &route{entry: EntrySOCKS, port: binary.BigEndian.Uint16(b[size:])}
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
