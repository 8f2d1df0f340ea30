//go:build linux

package transparent_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/netsetup"
	"github.com/cove-sandbox/cove/internal/linux/origdst"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

// TestKernelTakesIt: in a new namespace every address leads to the listener, also after the rules have been replaced.
func TestKernelTakesIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace of its own")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if err := netsetup.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	var listeners []net.Listener
	for _, l := range [][2]string{{"tcp4", "127.0.0.1:1"}, {"tcp6", "[::1]:1"}} {
		f, err := netsetup.Listen(l[0], l[1])
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		listeners = append(listeners, ln)
	}
	for _, again := range []bool{false, true, true} {
		plan := transparent.Plan{TCPPort: 1, DNSPort: 53, Again: again}
		routes, err := plan.Routes()
		if err != nil {
			t.Fatal(err)
		}
		rules, err := plan.Firewall()
		if err != nil {
			t.Fatal(err)
		}
		if err := netsetup.Send(unix.NETLINK_ROUTE, routes); err != nil {
			t.Fatalf("again %v: routes: %v", again, err)
		}
		if err := netsetup.Send(unix.NETLINK_NETFILTER, rules); err != nil {
			t.Fatalf("again %v: firewall: %v", again, err)
		}
		for i, to := range []string{"192.0.2.1:4242", "[2001:db8::1]:4242"} {
			client := connect(t, to)
			c, err := listeners[i].Accept()
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := origdst.Of(c.(*net.TCPConn))
			if err != nil || wanted.String() != to {
				t.Errorf("again %v: %s arrives as %s, %v", again, to, wanted, err)
			}
			c.Close()
			client.Close()
		}
	}
	plan := transparent.Plan{TCPPort: 1, DNSPort: 53}
	routes, err := plan.Routes()
	if err != nil {
		t.Fatal(err)
	}
	if err := netsetup.Send(unix.NETLINK_ROUTE, routes); err != unix.EEXIST {
		t.Errorf("what is there, and not asked for again: %v", err)
	}
}

// connect connects from this thread, and so from its namespace.
func connect(t *testing.T, to string) io.Closer {
	t.Helper()
	a := netip.MustParseAddrPort(to)
	var sa unix.Sockaddr
	family := unix.AF_INET
	if a.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	} else {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sa); err != nil {
		t.Fatalf("connect to %s: %v", to, err)
	}
	return os.NewFile(uintptr(fd), to)
}
