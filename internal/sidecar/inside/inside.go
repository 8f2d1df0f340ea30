//go:build linux

// Package inside has the work of cove-guest in a sidecar: it leads a sandbox's network to sockets of its own, gives up
// every privilege, and carries what arrives to the host. See package sidecar.
package inside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/netsetup"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
	"github.com/cove-sandbox/cove/internal/linux/seccomp/load"
	"github.com/cove-sandbox/cove/internal/sidecar"
)

// unprivileged is the user and the group of a sidecar that has done its work as root.
const unprivileged = 65534

// Run serves conn until it ends. It is called with the main thread locked, in the network that it is for.
func Run(conn Conn) error {
	var sockets []*socket
	s, err := sidecar.Inside(conn, func(setup sidecar.Setup) (err error) {
		if sockets, err = lead(setup); err != nil {
			return err
		}
		return giveUp(setup.Filter)
	})
	if err != nil {
		return err
	}
	for _, own := range sockets {
		if own.datagram {
			go own.receive(s)
		} else {
			go own.accept(s)
		}
	}
	return s.ServeInside(func(index int, to netip.AddrPort, p []byte) {
		if index < len(sockets) && sockets[index].datagram {
			sockets[index].send(to, p)
		}
	})
}

// Conn is the connection to the host.
type Conn interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	Close() error
}

// lead makes the sockets the only way out of this thread's network.
func lead(setup sidecar.Setup) (sockets []*socket, err error) {
	links, err := netsetup.Links()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	if around := netsetup.WaysAround(links); len(around) > 0 {
		return nil, fmt.Errorf("the network has a way around the gateway: %s", strings.Join(around, ", "))
	}
	if err := turnOnIPv6(); err != nil {
		return nil, err
	}
	if err := netsetup.LoopbackUp(); err != nil {
		return nil, fmt.Errorf("bring up the loopback interface: %w", err)
	}
	if err := netsetup.Send(unix.NETLINK_ROUTE, setup.Routes); err != nil {
		return nil, fmt.Errorf("set the routes: %w", err)
	}
	if err := netsetup.Send(unix.NETLINK_NETFILTER, setup.Firewall); err != nil {
		return nil, fmt.Errorf("set the firewall, for which the kernel needs nf_tables with nat and redirect: %w", err)
	}
	for i, want := range setup.Sockets {
		f, err := netsetup.Listen(want.Network, want.Address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s %s: %w", want.Network, want.Address, err)
		}
		own, err := pollable(f)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, &socket{index: i, datagram: strings.HasPrefix(want.Network, "udp"), f: own})
	}
	return sockets, nil
}

// turnOnIPv6 turns it on where a container engine has turned it off.
func turnOnIPv6() error {
	const name = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"
	off, err := os.ReadFile(name)
	if err == nil && string(off) != "0\n" {
		err = os.WriteFile(name, []byte("0"), 0)
	}
	if err != nil {
		return fmt.Errorf("turn on IPv6, whose traffic has to be redirected: %w", err)
	}
	return nil
}

// pollable has calls on f wait for the runtime's poller instead of a thread.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// giveUp makes this process one of a user without any privilege.
func giveUp(filter []byte) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// A process that stops being root's has no capability any more.
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(unprivileged), syscall.Setuid(unprivileged)); err != nil {
		return fmt.Errorf("become another user: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var left [2]unix.CapUserData
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&left)),
		0); errno != 0 {
		return errno
	}
	if left != [2]unix.CapUserData{} {
		return fmt.Errorf("capabilities are left: %x", left)
	}
	return load.Filter(filter, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// socket is one at which clients arrive.
type socket struct {
	index    int
	datagram bool
	f        *os.File
}

// acceptPause is between attempts that fail.
const acceptPause = 10 * time.Millisecond

// accept carries every connection.
func (s *socket) accept(to *sidecar.Session) {
	raw, err := s.f.SyscallConn()
	if err != nil {
		return
	}
	for {
		var fd int
		var failed error
		err := raw.Read(func(l uintptr) bool {
			fd, _, failed = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return failed != unix.EAGAIN
		})
		switch {
		case err != nil: // it is closed
			return
		case failed != nil: // the client has left, or there are too many
			time.Sleep(acceptPause)
			continue
		}
		go func() {
			c := client{os.NewFile(uintptr(fd), "client")}
			at, err := origdst.Of(c.File)
			if err != nil {
				at = netip.AddrPort{}
			}
			to.Carry(s.index, at, c)
		}()
	}
}

// client is a connection of a program in the sandbox.
type client struct{ *os.File }

// CloseWrite implements sidecar.Peer.
func (c client) CloseWrite() error {
	return c.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// Break implements sidecar.Peer.
func (c client) Break() {
	c.control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	c.Close()
}

func (c client) control(f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) { failed = f(int(fd)) }), failed)
}

// receive carries every datagram.
func (s *socket) receive(to *sidecar.Session) {
	raw, err := s.f.SyscallConn()
	if err != nil {
		return
	}
	p := make([]byte, sidecar.MaxDatagram+1)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), p, 0)
			return failed != unix.EAGAIN
		})
		if err != nil {
			return
		}
		if failed != nil {
			continue // an error of an earlier answer
		}
		switch a := from.(type) {
		case *unix.SockaddrInet4:
			to.SendPacket(s.index, netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), p[:n])
		case *unix.SockaddrInet6:
			to.SendPacket(s.index, netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), p[:n])
		}
	}
}

// send answers a client, which may not be there any more.
func (s *socket) send(to netip.AddrPort, p []byte) {
	raw, err := s.f.SyscallConn()
	if err != nil {
		return
	}
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		at = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	raw.Control(func(fd uintptr) { unix.Sendto(int(fd), p, unix.MSG_DONTWAIT, at) })
}
