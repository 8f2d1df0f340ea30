//go:build linux

// Package netconnect connects TCP sockets that were made in other network namespaces. A socket stays in the namespace
// in which it was made, so a process that has one connects there without entering it.
package netconnect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Check refuses a file that is no TCP socket of IPv6 to connect: of another kind, one that listens, that is connected,
// or that is in the network namespace of this process.
func Check(f *os.File) error {
	fd := int(f.Fd())
	for _, o := range []struct {
		name         string
		option, want int
	}{{"family", unix.SO_DOMAIN, unix.AF_INET6}, {"type", unix.SO_TYPE, unix.SOCK_STREAM},
		{"protocol", unix.SO_PROTOCOL, unix.IPPROTO_TCP}, {"state of listening", unix.SO_ACCEPTCONN, 0}} {
		is, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		if err != nil {
			return err
		}
		if is != o.want {
			return fmt.Errorf("the socket's %s is %d, want %d", o.name, is, o.want)
		}
	}
	if _, err := unix.Getpeername(fd); !errors.Is(err, unix.ENOTCONN) {
		return errors.New("the socket has a peer")
	}
	own, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	here, err := unix.GetsockoptUint64(own, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil // before Linux 5.14
	}
	if err != nil {
		return err
	}
	there, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err == nil && here == there {
		err = errors.New("the socket is this machine's own")
	}
	return err
}

// Connect connects a socket that Check has passed, and takes it over. The process that made the socket may have it too,
// and let it block: Close of the connection does not wait. Errors: those of connect(2), the end of ctx.
func Connect(ctx context.Context, f *os.File, to netip.AddrPort) (net.Conn, error) {
	defer f.Close() // the connection has its own
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // what made it may have let it block
		unix.Close(fd)
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	if err := connect(ctx, socket, fd, to); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := net.FileConn(socket)
	if err != nil {
		return nil, err
	}
	return &conn{c.(*net.TCPConn)}, nil
}

// conn is a connection whose Close ends what waits in the kernel: Close of package net waits for that.
type conn struct{ *net.TCPConn }

func (c *conn) Close() error {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	return c.TCPConn.Close()
}

func connect(ctx context.Context, socket *os.File, fd int, to netip.AddrPort) error {
	err := unix.Connect(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}) // of IPv4, too
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	defer context.AfterFunc(ctx, func() { socket.SetWriteDeadline(time.Unix(1, 0)) })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	failed := 0
	if waited := raw.Write(func(uintptr) bool {
		var code unix.Sockaddr
		if failed, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || failed != 0 {
			return true
		}
		code, err = unix.Getpeername(fd)
		return code != nil || !errors.Is(err, unix.ENOTCONN)
	}); waited != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return waited
	}
	if err == nil && failed != 0 {
		err = unix.Errno(failed)
	}
	return err
}
