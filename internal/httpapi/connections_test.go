package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/test/await"
)

func TestAddressOf(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.1":             "192.0.2.1",
		"::ffff:192.0.2.1":      "192.0.2.1",
		"2001:db8:1:2:3:4:5:6":  "2001:db8:1:2::/64",
		"2001:db8:1:2::9":       "2001:db8:1:2::/64",
		"2001:db8:1:3::9":       "2001:db8:1:3::/64",
		"fe80::1:2:3:4%network": "fe80::/64",
	} {
		if got := addressOf(netip.MustParseAddr(a)); got != cove.Address(want) {
			t.Errorf("%s is %s, want %s", a, got, cove.Address(want))
		}
	}
}

func TestMostConnections(t *testing.T) {
	for descriptors, want := range map[uint64]int64{256: 128, 1024: 512, 20000: 8192, unix.RLIM_INFINITY: 8192} {
		if got := mostConnections(descriptors); got != want {
			t.Errorf("%d of %d descriptors, want %d", got, descriptors, want)
		}
	}
}

// crowd connects so many times, waits a moment for the connections that are closed at once, and returns the others.
func crowd(t *testing.T, n int, dial func() (net.Conn, error)) (open []net.Conn) {
	t.Helper()
	var mu sync.Mutex
	var looking sync.WaitGroup
	for range n {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		looking.Go(func() {
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Close()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			open = append(open, c)
		})
	}
	looking.Wait()
	return open
}

// TestConnectionsAreShared: a local user has as many connections over loopback as its share is, and a further one is
// closed at once. Another user has one, and so has the machine's owner at its socket.
func TestConnectionsAreShared(t *testing.T) {
	h := start(t, func(o *Options) { o.MaxConnections = 32 })
	own := func() (net.Conn, error) { return net.Dial("tcp", h.address) }
	open := crowd(t, 20, own)
	if len(open) != 14 {
		t.Errorf("a user has %d connections of 32, want 14", len(open))
	}
	if r := h.do(h.owner, "GET", "/metrics", ""); !strings.Contains(r.body, "sandbox_http_connections 14\n") ||
		!strings.Contains(r.body, "sandbox_http_connections_refused_total 6\n") {
		t.Errorf("the owner's look at the metrics: %d %s", r.StatusCode, r.body)
	}
	if n := strings.Count(h.log.String(), "a connection was closed at once"); n != 1 {
		t.Errorf("the log has %d lines about it in a minute", n)
	}
	if os.Geteuid() == 0 {
		if n := len(crowd(t, 20, func() (net.Conn, error) { return dialAs(4242, h.address) })); n != 7 {
			t.Errorf("another user has %d connections beside these, want 7", n)
		}
	}
	if n := len(crowd(t, 50, func() (net.Conn, error) { return net.Dial("unix", h.socket) })); n != 50 {
		t.Errorf("the machine's owner has %d connections of 50", n)
	}
	for _, c := range open {
		c.Close()
	}
	await.That(t, "a request of the user that has left", func() bool {
		r, err := h.client.Get(h.url + "/health")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// dialAs connects as a user of the machine.
func dialAs(uid int, address string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(uid); err != nil {
		return nil, err
	}
	defer unix.SetfsuidRetUid(os.Geteuid())
	return net.Dial("tcp", address)
}

// TestStrangersAtTheOwnersDoor: a program in a sandbox that the owner's socket was shown to has its user's share of
// connections, and leaves the owner's alone.
func TestStrangersAtTheOwnersDoor(t *testing.T) {
	if at := os.Getenv("COVE_TEST_CROWD"); at != "" { // the stranger
		fmt.Printf("%d\n", len(crowd(t, 20, func() (net.Conn, error) { return net.Dial("unix", at) })))
		os.Stdout.Close()
		io.Copy(io.Discard, os.Stdin) // until the test has seen enough
		return
	}
	at := serveOwner(t, 32)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestStrangersAtTheOwnersDoor$")
	cmd.Env = append(os.Environ(), "COVE_TEST_CROWD="+at)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}}
	stays, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(says)
	if err != nil || string(text) != "14\n" {
		t.Errorf("a stranger has %q connections of 32, want 14 (%v)", text, err)
	}
	if n := len(crowd(t, 50, func() (net.Conn, error) { return net.Dial("unix", at) })); n != 50 {
		t.Errorf("the owner has %d connections of 50 beside it", n)
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", at)
	}}}
	defer c.CloseIdleConnections()
	if r, err := c.Get("http://cove/health"); err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusOK {
		t.Errorf("the owner's request: %v", err)
	}
	stays.Close()
	cmd.Wait()
}
