//go:build linux

// Package outside is the host's end of a sidecar: it says what its container is (container.go), makes sockets that
// stand for those in the sandbox's network, as an egress route takes them, and connects to them what the sidecar
// carries. See packages sidecar and relayed.
package outside

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/relayed"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
	"github.com/cove-sandbox/cove/internal/sidecar"
)

// Bounds of the clients that send datagrams to one sidecar.
const (
	maxClients     = 128
	clientPatience = 10 * time.Second // for an answer
	maxQueued      = 64               // datagrams that wait to be delivered
)

// End is the host's end of a sidecar that is ready.
type End struct {
	Sockets []*os.File // that stand for those of the setup, in its order; the caller's

	session *sidecar.Session
	in      []*relayed.Entrance
	queue   chan datagram
	done    chan struct{}
	gone    atomic.Bool // nothing listens any more
	err     error       // why the session has ended; read after done

	mu      sync.Mutex
	clients map[client]*net.UnixConn
}

// client is a program in the sandbox that sends datagrams to the socket of an index.
type client struct {
	index int
	at    netip.AddrPort
}

type datagram struct {
	from client
	data []byte
}

// Setup has a sidecar lead its network as plan says, make sockets there, and give up its privileges with a filter of
// system calls.
func Setup(plan transparent.Plan, sockets []netjoin.Socket, filter []byte) (s sidecar.Setup, err error) {
	m, err := plan.Messages()
	if err != nil {
		return s, err
	}
	s.Routes, s.Firewall, s.Filter = m.Routes, m.Firewall, filter
	for _, socket := range sockets {
		s.Sockets = append(s.Sockets, sidecar.Socket(socket))
	}
	return s, nil
}

// Begin has a sidecar at conn do what setup says, and carries what it sends from then on. dir is a directory of this
// user's, in which nothing stays. The caller closes the end. Errors: *sidecar.Failure, those of conn; conn is closed
// then.
func Begin(ctx context.Context, conn io.ReadWriteCloser, setup sidecar.Setup, dir string) (*End, error) {
	e := newEnd()
	for _, s := range setup.Sockets {
		f, in, err := relayed.Listen(dir, s.Network)
		if err != nil {
			e.drop()
			return nil, errors.Join(err, conn.Close())
		}
		e.Sockets, e.in = append(e.Sockets, f), append(e.in, in)
	}
	if err := e.begin(ctx, conn, setup); err != nil {
		e.drop()
		return nil, err
	}
	return e, nil
}

// Again is Begin for the next sidecar of the same network, once the one of e has ended: what arrives in the network is
// brought to the sockets of e, which the new end takes over. e is as it was after an error.
func (e *End) Again(ctx context.Context, conn io.ReadWriteCloser, setup sidecar.Setup) (*End, error) {
	next := newEnd()
	next.in = e.in
	if err := next.begin(ctx, conn, setup); err != nil {
		return nil, err
	}
	e.in = nil
	return next, nil
}

func newEnd() *End {
	return &End{queue: make(chan datagram, maxQueued), done: make(chan struct{}), clients: map[client]*net.UnixConn{}}
}

// begin begins the session at conn, which it closes on error.
func (e *End) begin(ctx context.Context, conn io.ReadWriteCloser, setup sidecar.Setup) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	session, err := sidecar.Outside(conn, setup)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return errors.Join(err, conn.Close())
	}
	e.session = session
	delivered := make(chan struct{})
	go func() { defer close(delivered); e.deliver() }()
	go func() {
		e.err = session.Serve(e, len(e.in))
		if e.gone.Load() {
			e.err = ErrUnused
		}
		close(e.queue)
		<-delivered
		e.forget()
		close(e.done)
	}()
	return nil
}

// drop closes the sockets of an end that has not begun.
func (e *End) drop() {
	for _, f := range e.Sockets {
		f.Close()
	}
	e.leave()
}

// leave closes the entrances.
func (e *End) leave() {
	for _, in := range e.in {
		in.Close()
	}
}

// forget closes the sockets of clients that send datagrams.
func (e *End) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.clients {
		c.Close()
	}
}

// ErrUnused says that the sockets were closed, so that nothing needs a sidecar any more.
var ErrUnused = errors.New("the sockets for which it stands were closed")

// unused ends the sidecar when nothing listens any more: programs in the sandbox are refused then, as they are where
// the sockets are in their network.
func (e *End) unused(err error) {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTCONN) {
		e.gone.Store(true)
		e.session.Close()
	}
}

// Done is closed when the sidecar carries nothing any more, and Err says why then.
func (e *End) Done() <-chan struct{} { return e.done }

// Err returns why the sidecar has ended, after Done: ErrUnused, or what the connection says.
func (e *End) Err() error { return e.err }

// Close ends the sidecar, and waits until nothing is carried any more.
func (e *End) Close() {
	e.session.Close()
	<-e.done
	e.leave()
}

// Open implements sidecar.Host.
func (e *End) Open(index int, to netip.AddrPort) (sidecar.Peer, error) {
	if e.in[index].Datagrams() {
		return nil, errors.New("nothing connects to a socket for datagrams")
	}
	c, err := e.in[index].Dial(to)
	if err != nil {
		e.unused(err)
		return nil, err
	}
	return peer{c}, nil
}

// peer is a connection to the egress route.
type peer struct{ *net.UnixConn }

func (p peer) Read(b []byte) (int, error) { return relayed.Read(p.UnixConn, b) }

func (p peer) Break() { p.Close() }

// Packet implements sidecar.Host. A datagram that cannot be delivered at once is lost, as on a network.
func (e *End) Packet(index int, from netip.AddrPort, p []byte) {
	if !e.in[index].Datagrams() {
		return
	}
	select {
	case e.queue <- datagram{client{index, from}, append([]byte(nil), p...)}:
	default:
	}
}

// deliver delivers the datagrams. One that its receiver does not take within a moment is lost.
func (e *End) deliver() {
	for d := range e.queue {
		c := e.connect(d.from)
		if c == nil {
			continue
		}
		now := time.Now()
		c.SetReadDeadline(now.Add(clientPatience))
		c.SetWriteDeadline(now.Add(100 * time.Millisecond))
		if _, err := c.Write(d.data); err != nil {
			e.unused(err)
		}
	}
}

// connect returns the socket of a client; nil when there are too many.
func (e *End) connect(of client) *net.UnixConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.clients[of]; c != nil {
		return c
	}
	if len(e.clients) >= maxClients {
		return nil
	}
	c, err := e.in[of.index].Dial(netip.AddrPort{})
	if err != nil {
		e.unused(err)
		return nil
	}
	c.SetReadDeadline(time.Now().Add(clientPatience))
	e.clients[of] = c
	go e.answer(of, c)
	return c
}

// answer carries the answers for a client until it has sent nothing for a while.
func (e *End) answer(of client, c *net.UnixConn) {
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.clients, of)
		c.Close()
	}()
	p := make([]byte, sidecar.MaxDatagram)
	for {
		n, err := c.Read(p)
		if err != nil || e.session.SendPacket(of.index, of.at, p[:n]) != nil {
			return
		}
	}
}
