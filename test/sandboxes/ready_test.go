package sandboxes

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// TestReadyGuestsDie: a guest that has died while it waited is replaced, at whatever moment its death shows. Guests are
// killed immediately before executions and before long-lived sandboxes.
func TestReadyGuestsDie(t *testing.T) {
	l := newLab(t)
	l.must("cove", "server", "start")
	server := l.serverPID()
	c, err := client.New(client.Options{Address: "unix:" + l.in("run/cove.sock")})
	if err != nil {
		t.Fatal(err)
	}
	kill := func() {
		t.Helper()
		var guests []int
		l.eventually("guests wait", func() bool { guests = guestsOf(t, server); return len(guests) > 0 })
		for _, pid := range guests {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	}
	for i := range 20 {
		kill()
		e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo hello"})
		if err != nil || e.Output != "hello\n" {
			t.Errorf("execution %d: %+v, %v", i, e, err)
		}
	}
	for i := range 5 {
		// The first makes the guests of its kind that wait.
		name := "lasts" + strconv.Itoa(i)
		if i > 0 {
			kill()
		}
		s, err := c.CreateSandbox(t.Context(), api.SandboxRequest{Name: name,
			Network: &api.NetworkPermission{Enabled: true, GatewayPolicy: api.GatewayPolicy{Mode: "open"}}}, nil)
		if err != nil || s.State != "running" {
			t.Errorf("long-lived sandbox %d: %+v, %v", i, s, err)
		}
		l.must("cove", "exec", name, "--", "true")
		l.must("cove", "destroy", name, "--yes")
	}
}

// guestsOf returns the guests that a server, or its fork server, has started.
func guestsOf(t *testing.T, server int) (guests []int) {
	t.Helper()
	for _, forks := range append(childrenOf(t, server, "cove-fork"), server) {
		guests = append(guests, childrenOf(t, forks, "cove-guest")...)
	}
	return guests
}

// childrenOf returns the children of a process that have a name.
func childrenOf(t *testing.T, parent int, name string) (children []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		status, _ := os.ReadFile(file)
		if !strings.HasPrefix(string(status), "Name:\t"+name+"\n") ||
			!strings.Contains(string(status), "\nPPid:\t"+strconv.Itoa(parent)+"\n") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	return children
}

// TestStartBesideAnEnd: a socket that still took connections as its server ended keeps no other one from starting.
func TestStartBesideAnEnd(t *testing.T) {
	l := newLab(t)
	if err := os.MkdirAll(l.in("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	dying, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.in("run/cove.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dying.SetUnlinkOnClose(false)
	defer dying.Close()
	go func() {
		for {
			conn, err := dying.Accept()
			if err != nil {
				return
			}
			if n, _ := conn.Read(make([]byte, 1)); n > 0 { // a request, and not only a connection
				dying.Close()
			}
			conn.Close()
		}
	}()
	if out := l.must("cove", "server", "start"); !strings.Contains(out, "running") {
		t.Errorf("it says %q", out)
	}
}
