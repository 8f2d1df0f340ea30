//go:build linux

package netjoin

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/netconnect"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
)

func TestNoWayAround(t *testing.T) {
	lo := netsetup.Link{Name: "lo", Loopback: true, Up: true}
	for _, c := range []struct {
		name string
		link netsetup.Link
		ok   bool
	}{
		{"loopback alone", lo, true},
		{"a veth", netsetup.Link{Name: "eth0", Up: true}, false},
		{"a veth that is down", netsetup.Link{Name: "eth0"}, false},
		{"a fallback tunnel", netsetup.Link{Name: "sit0"}, true},
		{"a fallback tunnel that is up", netsetup.Link{Name: "sit0", Up: true}, false},
		{"another that is called so", netsetup.Link{Name: "sit00"}, false},
	} {
		if err := noWayAround([]netsetup.Link{lo, c.link}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

var (
	plan    = messages()
	sockets = []Socket{{"tcp4", "127.0.0.1:1"}, {"tcp6", "[::1]:1"}, {"udp4", "127.0.0.1:53"}, {"udp6", "[::1]:53"}}
)

func messages() netsetup.Messages {
	m, err := transparent.Plan{TCPPort: 1, DNSPort: 53}.Messages()
	if err != nil {
		panic(err)
	}
	return m
}

// holder starts a process in a network namespace of its own and returns its id.
func holder(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace to enter")
	}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

func TestTake(t *testing.T) {
	pid := holder(t)
	for range 2 { // a second time, after the first server has gone
		files, err := Take(pid, plan, sockets)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != len(sockets) {
			t.Errorf("%d sockets", len(files))
		}
		if _, err := Take(pid, plan, sockets); cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("taken while it is: %v", err)
		}
		for _, f := range files {
			f.Close()
		}
	}
	if links, err := net.Interfaces(); err != nil || len(links) == 0 {
		t.Errorf("our own interfaces: %v, %v", links, err)
	}
}

// TestTCPSocket: it is in the other namespace, and this process stays in its own.
func TestTCPSocket(t *testing.T) {
	theirs, err := Open(holder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	f, err := TCPSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := netconnect.Check(f); err != nil {
		t.Error(err)
	}
	own, err := net.Interfaces()
	if err != nil || len(own) < 2 {
		t.Errorf("our own interfaces: %v, %v", own, err)
	}
	if _, err := TCPSocket(f); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("a file that is no namespace: %v", err)
	}
}

func TestNotOurs(t *testing.T) {
	if _, err := Take(os.Getpid(), plan, sockets); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("our own namespace: %v", err)
	}
	if _, err := Take(1<<30, plan, sockets); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("nobody's: %v", err)
	}
}
