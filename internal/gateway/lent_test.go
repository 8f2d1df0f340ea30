//go:build linux

package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/test/await"
)

// openSockets makes the sockets of a route, and opens each once more, as PID 1 of a sandbox has it.
func openSockets(t *testing.T) (sockets []*os.File, theirs []int) {
	t.Helper()
	for _, l := range engine.RouteListeners() {
		host := strings.TrimSuffix(l.Address, l.Address[strings.LastIndex(l.Address, ":"):])
		var f *os.File
		if l.Network[:3] == "udp" {
			p, err := net.ListenPacket(l.Network, host+":0")
			if err != nil {
				t.Fatal(err)
			}
			f, err = p.(*net.UDPConn).File()
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
		} else {
			s, err := net.Listen(l.Network, host+":0")
			if err != nil {
				t.Fatal(err)
			}
			f, err = s.(*net.TCPListener).File()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		sockets = append(sockets, f)
	}
	for _, f := range sockets {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		theirs = append(theirs, fd)
	}
	return sockets, theirs
}

// TestCloseWithSocketsThatBlock: a route ends though PID 1, which has its sockets, too, lets them block.
func TestCloseWithSocketsThatBlock(t *testing.T) {
	r, _ := newTestRoute(t)
	sockets, theirs := openSockets(t)
	if err := r.Serve(sockets); err != nil {
		t.Fatal(err)
	}
	for i, fd := range theirs {
		unix.SetNonblock(fd, false)
		if engine.RouteListeners()[i].Network[:3] == "tcp" {
			at, err := unix.Getsockname(fd)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := net.Dial("tcp", addressOf(at)); err == nil { // or it is reset already
				defer c.Close()
			}
		}
	}
	await.That(t, "threads wait in the kernel", func() bool { return accepting() >= 3 })
	ended := make(chan struct{})
	go func() { r.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
}

func addressOf(at unix.Sockaddr) string {
	if six, ok := at.(*unix.SockaddrInet6); ok {
		return netip.AddrPortFrom(netip.AddrFrom16(six.Addr), uint16(six.Port)).String()
	}
	four := at.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port)).String()
}

// accepting counts the threads of this process that are in accept4.
func accepting() (n int) {
	all, _ := filepath.Glob("/proc/self/task/*/syscall")
	for _, f := range all {
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), fmt.Sprint(unix.SYS_ACCEPT4, " ")) {
			n++
		}
	}
	return n
}

// TestLeave: the sockets of a sandbox that goes on listen for the next process.
func TestLeave(t *testing.T) {
	for name, end := range map[string]func(*Route){"leave": (*Route).Leave, "close": (*Route).Close} {
		r, _ := newTestRoute(t)
		sockets, theirs := openSockets(t)
		if err := r.Serve(sockets); err != nil {
			t.Fatal(err)
		}
		end(r)
		for i, fd := range theirs {
			if l := engine.RouteListeners()[i]; l.Network[:3] == "tcp" {
				listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
				if err != nil || (listens == 1) != (name == "leave") {
					t.Errorf("%s: %s %s listens: %d, %v", name, l.Network, l.Address, listens, err)
				}
			}
		}
	}
}
