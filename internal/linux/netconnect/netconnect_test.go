//go:build linux

package netconnect

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// elsewhere calls f on a thread in a network namespace of its own, with its loopback up.
func elsewhere(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			up, _ := unix.NewIfreq("lo")
			up.SetUint16(unix.IFF_UP)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func socket(t *testing.T, family, kind int) *os.File {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return nil
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

// TestConnect: a socket of another namespace is connected there.
func TestConnect(t *testing.T) {
	for _, at := range []string{"127.0.0.1", "::1"} {
		var there, idle *os.File
		var ln net.Listener
		var err error
		elsewhere(t, func() {
			there, idle = socket(t, unix.AF_INET6, unix.SOCK_STREAM), socket(t, unix.AF_INET6, unix.SOCK_STREAM)
			ln, err = net.Listen("tcp", net.JoinHostPort(at, "0"))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if peer, err := ln.Accept(); err == nil {
				io.WriteString(peer, "there")
				peer.Close()
			}
		}()
		port := ln.Addr().(*net.TCPAddr).AddrPort().Port()
		if err := Check(there); err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(netip.MustParseAddr(at), port)
		if here, err := net.Dial("tcp", to.String()); err == nil { // the control
			here.Close()
			t.Errorf("%s is here as well", to)
		}
		conn, err := Connect(t.Context(), there, to)
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		if said, err := io.ReadAll(conn); string(said) != "there" {
			t.Errorf("%s says %q, %v", to, said, err)
		}
		conn.Close()
		ln.Close()
		if _, err := Connect(t.Context(), idle, to); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s, where nothing listens: %v", to, err)
		}
	}
}

// TestClose: a connection is closed although whoever has its socket, too, has let it block.
func TestClose(t *testing.T) {
	var there *os.File
	var ln net.Listener
	var err error
	elsewhere(t, func() {
		there = socket(t, unix.AF_INET6, unix.SOCK_STREAM)
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	other, err := unix.FcntlInt(there.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	c, err := Connect(t.Context(), there, ln.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	unix.SetNonblock(other, false)
	io.WriteString(peer, "x")
	reads := make(chan struct{})
	go func() {
		for b := make([]byte, 1); ; {
			n, err := c.Read(b)
			if n == 1 {
				close(reads) // the next one waits in the kernel
			}
			if err != nil {
				return
			}
		}
	}()
	<-reads
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the end of a connection waits for what reads it")
	}
}

// TestConnectEnds: the end of the caller ends the attempt.
func TestConnectEnds(t *testing.T) {
	var from *os.File
	var full []int
	var to netip.AddrPort
	elsewhere(t, func() {
		from = socket(t, unix.AF_INET6, unix.SOCK_STREAM)
		// A listener that accepts nothing answers no more once its queue is full.
		ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		}
		if err == nil {
			err = unix.Listen(ln, 0)
		}
		name, nerr := unix.Getsockname(ln)
		if err = errors.Join(err, nerr); err != nil {
			t.Error(err)
			return
		}
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
		full = append(full, ln)
		for range 4 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err == nil {
				err = unix.Connect(fd, name)
			}
			if err != nil && !errors.Is(err, unix.EINPROGRESS) {
				t.Error(err)
			}
			full = append(full, fd)
		}
	})
	defer func() {
		for _, fd := range full {
			unix.Close(fd)
		}
	}()
	why := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if c, err := Connect(ctx, from, to); !errors.Is(err, why) {
		t.Errorf("%v, %v", c, err)
	}
}

// TestCheck: what a guest may give instead of a socket is refused.
func TestCheck(t *testing.T) {
	var streams, listens, connected, datagrams, four *os.File
	elsewhere(t, func() {
		streams, four = socket(t, unix.AF_INET6, unix.SOCK_STREAM), socket(t, unix.AF_INET, unix.SOCK_STREAM)
		datagrams = socket(t, unix.AF_INET6, unix.SOCK_DGRAM)
		listens, connected = socket(t, unix.AF_INET6, unix.SOCK_STREAM), socket(t, unix.AF_INET6, unix.SOCK_STREAM)
		unix.Bind(int(listens.Fd()), &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()})
		unix.Listen(int(listens.Fd()), 1)
		name, _ := unix.Getsockname(int(listens.Fd()))
		if err := unix.Connect(int(connected.Fd()), name); err != nil {
			t.Error(err)
		}
	})
	if err := Check(streams); err != nil { // the control
		t.Errorf("what is right: %v", err)
	}
	for what, c := range map[string]struct {
		file *os.File
		says string
	}{
		"listens": {listens, "listening"}, "connected": {connected, "peer"}, "datagrams": {datagrams, "type"},
		"four": {four, "family"}, "unix": {socket(t, unix.AF_UNIX, unix.SOCK_STREAM), "family"},
		"null": {null(t), "socket"}, "own": {socket(t, unix.AF_INET6, unix.SOCK_STREAM), "this machine's own"},
	} {
		if err := Check(c.file); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func null(t *testing.T) *os.File {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
