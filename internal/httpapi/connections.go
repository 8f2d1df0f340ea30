package httpapi

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/linux/peeruser"
	"github.com/cove-sandbox/cove/internal/localsocket"
	"github.com/cove-sandbox/cove/internal/share"
)

// connections shares the connections of a server's listeners among callers, before any of them has shown a key. A
// connection beyond its caller's share is closed at once. The machine's owner needs no share.
type connections struct {
	pool    *share.Pool
	refused prometheus.Counter
	clock   clock.Clock
	log     *slog.Logger

	mu    sync.Mutex
	quiet clock.Instant // guarded by mu: until then refusals are counted only
}

// mostConnections returns how many connections there are for callers on a server that may have so many descriptors: the
// other half is for the machine's owner, and for what callers ask for.
func mostConnections(descriptors uint64) int64 { return int64(min(8192, descriptors/2)) }

// descriptors returns how many descriptors this process may have.
func descriptors() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return unix.RLIM_INFINITY
	}
	return l.Cur
}

// refusalPause is the time between two lines of the log about connections that are refused.
const refusalPause = time.Minute

func newConnections(most int64, registry *prometheus.Registry, c clock.Clock, log *slog.Logger) *connections {
	s := &connections{pool: share.New(most), clock: c, log: log,
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "sandbox_http_connections_refused_total",
			Help: "Connections that were closed at once, as their address or local user had its share."})}
	registry.MustRegister(s.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sandbox_http_connections",
		Help: "Open connections of others than the machine's owner."}, func() float64 { return float64(s.pool.Taken()) }))
	return s
}

// refuse closes a connection of a caller that has its share.
func (s *connections) refuse(c net.Conn, who cove.Principal) {
	c.Close()
	s.refused.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.clock.Monotonic(); now >= s.quiet {
		s.quiet = now.Add(refusalPause)
		s.log.Warn("a connection was closed at once: its caller has as many as it may have beside those of others",
			"client", who.String())
	}
}

// sharedListener hands out connections as callerConn, each of which takes of its caller's share until it is closed.
type sharedListener struct {
	net.Listener
	door door
	of   *connections
}

// Accept implements net.Listener.
func (l sharedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who, stranger := peerOf(c, l.door)
		if who.IsOwner() {
			return &callerConn{Conn: c, release: func() {}}, nil
		}
		if l.of.pool.Take(who, 1) {
			return &callerConn{Conn: c, stranger: stranger, release: sync.OnceFunc(func() { l.of.pool.Give(who, 1) })}, nil
		}
		l.of.refuse(c, who)
	}
}

// peerOf returns whose share a connection takes. At the owner's door that is the machine's owner, or the user of a
// stranger, with the reason why it is one. Over loopback, where all have one address, it is the local user, and
// elsewhere the address. What cannot be told has one share together.
func peerOf(c net.Conn, at door) (who cove.Principal, stranger error) {
	if at == fromOwner {
		if stranger = localsocket.CheckPeer(c); stranger == nil {
			return cove.MachineOwner(), nil
		}
		if uid, err := localsocket.PeerUser(c); err == nil {
			who = cove.LocalUser(uid)
		}
		return who, stranger
	}
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return cove.Principal{}, nil
	}
	if socket, ok := c.(*net.TCPConn); ok && peer.IP.IsLoopback() {
		if uid, err := peeruser.Find(socket); err == nil {
			return cove.LocalUser(uid), nil
		}
		return cove.Principal{}, nil
	}
	return addressOf(peer.AddrPort().Addr()), nil
}

// hostBits is the length of the part of an IPv6 address that tells a subscriber's network from others (RFC 6177).
const hostBits = 64

// addressOf returns the caller at an address. All addresses of an IPv6 network are one caller, as each host there has
// as many as it likes.
func addressOf(a netip.Addr) cove.Principal {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		return cove.Address(netip.PrefixFrom(a, hostBits).Masked().String())
	}
	return cove.Address(a.String())
}

// callerConn is a connection with a part of its caller's share.
type callerConn struct {
	net.Conn
	stranger error // at the owner's door: why it is not the owner's
	release  func()
}

// socketAddr is the remote address of a connection with its socket, which shares and TLS hide.
type socketAddr struct {
	net.Addr
	socket *net.TCPConn
}

// RemoteAddr implements net.Conn. The address of a connection of TCP leads to its socket.
func (c *callerConn) RemoteAddr() net.Addr {
	if socket, ok := c.Conn.(*net.TCPConn); ok {
		return socketAddr{socket.RemoteAddr(), socket}
	}
	return c.Conn.RemoteAddr()
}

// NetConn returns the connection below, as that of package tls does.
func (c *callerConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the answers, where the connection below can end one direction. Otherwise it does nothing.
func (c *callerConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *callerConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
