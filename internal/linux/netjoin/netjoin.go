//go:build linux

// Package netjoin enters the network namespaces of other processes: it sets one up so that its only way out is the
// sockets that it returns, and makes sockets in it that connect to the programs there.
package netjoin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
)

// Socket is a listening socket to make: a network as in package net, and a numeric address with its port.
type Socket struct{ Network, Address string }

// Take enters the network namespace of a process, sends messages there and returns the sockets. The namespace must have
// no interface except loopback, or traffic could bypass the sockets. It may be called again for the same namespace.
// Errors: NotFound when there is no such process, Forbidden, Conflict when the namespace has another way out or a
// socket's address is in use, Unsupported when the kernel lacks a feature.
func Take(pid int, m netsetup.Messages, sockets []Socket) ([]*os.File, error) {
	theirs, err := Open(pid)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	var files []*os.File
	err = within(theirs, func() (err error) {
		files, err = take(m, sockets)
		return err
	})
	return files, err
}

// TCPSocket returns a TCP socket of IPv6 in a network namespace, connected to nothing. Package netconnect connects it.
func TCPSocket(theirs *os.File) (f *os.File, err error) {
	err = within(theirs, func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			f = os.NewFile(uintptr(fd), "socket")
		}
		return os.NewSyscallError("socket", err)
	})
	return f, err
}

// within calls f on a thread in a network namespace. Errors: Forbidden, those of f.
func within(theirs *os.File, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ours, err := openOurs()
		if err != nil {
			done <- err
			return // and the thread with it
		}
		defer ours.Close()
		err = unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET)
		if err != nil {
			err = cove.Errorf(cove.Forbidden, "cannot enter a network namespace: %w", err).WithHint("run it as root")
		} else {
			err = f()
		}
		if unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}

func openOurs() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// Open opens the network namespace of a process, which must differ from ours. Errors: NotFound, Forbidden, Conflict.
func Open(pid int) (*os.File, error) {
	ours, err := openOurs()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	return namespaceOf(pid, ours)
}

// namespaceOf opens the network namespace of a process, which must differ from ours.
func namespaceOf(pid int, ours *os.File) (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no process %d", pid)
	}
	if err != nil {
		return nil, cove.Errorf(cove.Forbidden, "cannot look at the network namespace of process %d: %w", pid,
			err).WithHint("run it as root")
	}
	theirInfo, err := f.Stat()
	if err == nil {
		var ourInfo os.FileInfo
		if ourInfo, err = ours.Stat(); err == nil && os.SameFile(ourInfo, theirInfo) {
			err = cove.Errorf(cove.Conflict, "process %d is in the network namespace of this machine",
				pid).WithHint("start it in one of its own: docker run --network none, or unshare --net")
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// take runs on a thread in the namespace.
func take(m netsetup.Messages, sockets []Socket) (files []*os.File, err error) {
	links, err := netsetup.Links()
	if err != nil {
		return nil, err
	}
	if err := noWayAround(links); err != nil {
		return nil, err
	}
	// Container engines turn IPv6 off where they give no address.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("0"), 0); err != nil {
		return nil, cove.Errorf(cove.Unsupported, "cannot turn on IPv6 in the namespace: %w",
			err).WithHint("the kernel needs IPv6, so that its traffic can be redirected to the gateway")
	}
	if err := netsetup.LoopbackUp(); err != nil {
		return nil, fmt.Errorf("bring up the loopback interface: %w", err)
	}
	if err := netsetup.Send(unix.NETLINK_ROUTE, m.Routes); err != nil {
		return nil, cove.Errorf(cove.Unsupported, "cannot set the routes of the namespace: %w", err)
	}
	if err := netsetup.Send(unix.NETLINK_NETFILTER, m.Firewall); err != nil {
		return nil, cove.Errorf(cove.Unsupported, "cannot set the firewall of the namespace: %w",
			err).WithHint("the kernel needs nf_tables with nat and redirect")
	}
	for _, s := range sockets {
		f, err := netsetup.Listen(s.Network, s.Address)
		if err == nil {
			files = append(files, f)
			continue
		}
		for _, f := range files {
			f.Close()
		}
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, cove.Errorf(cove.Conflict, "%s %s is in use in the namespace already", s.Network,
				s.Address).WithHint("it may be attached already; or end the program that listens there")
		}
		return nil, fmt.Errorf("listen on %s %s: %w", s.Network, s.Address, err)
	}
	return files, nil
}

func noWayAround(links []netsetup.Link) error {
	names := netsetup.WaysAround(links)
	if len(names) == 0 {
		return nil
	}
	return cove.Errorf(cove.Conflict, "the namespace has a way around the gateway: %s",
		strings.Join(names, ", ")).WithHint("start the container with --network none")
}
