//go:build linux

// Package relayed makes sockets of this machine that stand for those of a network elsewhere: what arrives there is
// carried here and connected to them (package sidecar).
//
// They are unix sockets without a place in the file system, so that only who holds an Entrance connects to one. A
// connection brings along where its client wanted to go: in its first bytes, for all on the machine may read the
// names of sockets.
package relayed

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Entrance brings connections, or datagrams, to a socket of Listen.
type Entrance struct {
	at       *os.File // the socket's inode
	datagram bool
}

// Listen makes a socket for a network ("tcp4", "tcp6", "udp4", "udp6"), listening, and its entrance. dir is a directory
// of this user's, in which nothing stays.
func Listen(dir, network string) (socket *os.File, in *Entrance, err error) {
	own, err := os.MkdirTemp(dir, "relayed-") // no other user enters it
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(own)
	place, err := os.Open(own)
	if err != nil {
		return nil, nil, err
	}
	defer place.Close()
	in = &Entrance{datagram: strings.HasPrefix(network, "udp")}
	kind := unix.SOCK_STREAM
	if in.datagram {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socket", err)
	}
	socket = os.NewFile(uintptr(fd), "relayed "+network)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket", place.Fd())})
	if err == nil && !in.datagram {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err == nil {
		in.at, err = os.OpenFile(filepath.Join(own, "socket"), unix.O_PATH, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	return socket, in, nil
}

// none is in place of an address that is not valid.
const none = "-"

// Dial connects to the socket of in, for a client that wanted to go to a place, which may be none.
func (in *Entrance) Dial(of netip.AddrPort) (*net.UnixConn, error) {
	to := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d", in.at.Fd())}
	if in.datagram { // which are answered by a name
		to.Net = "unixgram"
		return net.DialUnix(to.Net, &net.UnixAddr{Net: to.Net, Name: "@cove/" + rand.Text()}, to)
	}
	place := none
	if of.IsValid() {
		place = of.String()
	}
	c, err := net.DialUnix(to.Net, nil, to)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append([]byte{byte(len(place))}, place...)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Datagrams reports whether they are brought in, and not connections.
func (in *Entrance) Datagrams() bool { return in.datagram }

// Close ends the entrance.
func (in *Entrance) Close() error { return in.at.Close() }

// Conn is a connection to a socket of Listen.
type Conn struct {
	*net.UnixConn
	local net.Addr
	to    netip.AddrPort

	broken atomic.Bool
}

// Destination returns where the client wanted to go; it is not valid where that was the socket itself.
func (c *Conn) Destination() netip.AddrPort { return c.to }

// LocalAddr returns the address of the socket for which this one stands.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns an address that tells nothing: it is the client's in its own network.
func (c *Conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// breakPatience is how long a client that reads slowly may keep Break from being told.
const breakPatience = 5 * time.Second

// Break closes the connection so that the client gets an error in place of an end: a descriptor among its bytes tells.
// It does not wait for the client, and is called before Close.
func (c *Conn) Break() {
	if c.broken.Swap(true) {
		return
	}
	c.SetReadDeadline(time.Unix(1, 0))
	c.SetWriteDeadline(time.Now().Add(breakPatience))
	go func() {
		defer c.UnixConn.Close()
		null, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		defer null.Close()
		c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(null.Fd())), nil)
	}()
}

// Close closes the connection, which Break does by itself.
func (c *Conn) Close() error {
	if c.broken.Load() {
		return nil
	}
	return c.UnixConn.Close()
}

// ErrBroken says that the other end has called Break.
var ErrBroken = errors.New("the connection was broken off")

// Read reads from a connection of Dial. Errors: ErrBroken.
func Read(c *net.UnixConn, p []byte) (int, error) {
	var control [64]byte
	n, got, _, _, err := c.ReadMsgUnix(p, control[:])
	if got > 0 {
		discard(control[:got])
		return 0, ErrBroken
	}
	return n, err
}

// discard closes descriptors that have arrived.
func discard(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

type listener struct {
	*net.UnixListener
	local net.Addr
}

// Listener returns the listener of a socket, which stands for that at a numeric address. A socket that is none of
// Listen's is one of package net's.
func Listener(socket *os.File, address string) (net.Listener, error) {
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, err
	}
	own, ok := l.(*net.UnixListener)
	if !ok {
		return l, nil
	}
	local, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{own, net.TCPAddrFromAddrPort(local)}, nil
}

func (l *listener) Addr() net.Addr { return l.local }

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if to, err := destination(c); err == nil {
			return &Conn{UnixConn: c, local: l.local, to: to}, nil
		}
		c.Close()
	}
}

// destination reads what Dial has written when it has connected.
func destination(c *net.UnixConn) (to netip.AddrPort, err error) {
	place := make([]byte, 1, 256)
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return to, err
	}
	if _, err = io.ReadFull(c, place); err == nil {
		place = place[:place[0]]
		_, err = io.ReadFull(c, place)
	}
	if err == nil && string(place) != none {
		to, err = netip.ParseAddrPort(string(place))
	}
	return to, errors.Join(err, c.SetReadDeadline(time.Time{}))
}

type packets struct {
	*net.UnixConn
	local net.Addr
}

// PacketConn returns the connection of a socket for datagrams, as Listener does.
func PacketConn(socket *os.File, address string) (net.PacketConn, error) {
	p, err := net.FilePacketConn(socket)
	if err != nil {
		return nil, err
	}
	own, ok := p.(*net.UnixConn)
	if !ok {
		return p, nil
	}
	local, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &packets{own, net.UDPAddrFromAddrPort(local)}, nil
}

func (p *packets) LocalAddr() net.Addr { return p.local }
