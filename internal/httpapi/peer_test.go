package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/localsocket"
	"github.com/cove-sandbox/cove/internal/store"
)

// serveOwner serves the machine's owner at a socket, whose path it returns. Others have at most some connections; 0 is
// the usual bound.
func serveOwner(t *testing.T, connections int64) (at string) {
	t.Helper()
	s, err := New(Options{Executor: &fakeExecutor{}, Store: store.NewVault(&fakeStore{}),
		CheckPath: hostpath.Rules{}.Check, MaxConnections: connections})
	if err != nil {
		t.Fatal(err)
	}
	at = filepath.Join(t.TempDir(), "s")
	ln, err := localsocket.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	go s.ServeLocal(ln)
	t.Cleanup(func() { s.Close() })
	return at
}

// TestOwnersDoorIsOutsideSandboxes: at the owner's socket, a process in namespaces like a sandbox's is told why it is
// not served, although its id is the owner's; the same process beside the server is.
func TestOwnersDoorIsOutsideSandboxes(t *testing.T) {
	if at := os.Getenv("COVE_TEST_DOOR"); at != "" { // the process that asks
		c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}}}
		for _, path := range []string{"/health", "/executions/none"} {
			r, err := c.Get("http://cove" + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			r.Body.Close()
			fmt.Printf("%s %d %s\n", path, r.StatusCode, body)
		}
		c.CloseIdleConnections()
		return
	}
	at := serveOwner(t, 0)
	for name, flags := range map[string]uintptr{"beside the server": 0,
		"in a sandbox": syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOwnersDoorIsOutsideSandboxes$")
		cmd.Env = append(os.Environ(), "COVE_TEST_DOOR="+at)
		if flags != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v, %s", name, err, out)
		}
		for _, path := range []string{"/health", "/executions/none"} {
			refused := strings.Contains(string(out), path+" 403 ") && strings.Contains(string(out), "another user namespace")
			if refused != (flags != 0) {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
}

// TestOwnersDoorIsClosed: at the owner's door a request without a verdict is refused, and so is a connection of a kind
// that does not tell who is at its other end; one within this process, and what comes in elsewhere, passes.
func TestOwnersDoorIsClosed(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	dialed, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted := func(c net.Conn) net.Conn {
		who, stranger := peerOf(c, fromOwner)
		if who.IsOwner() != (stranger == nil) {
			t.Errorf("%T: %s, and %v", c, who, stranger)
		}
		return &callerConn{Conn: c, stranger: stranger}
	}
	pipe, other := accepted(here), accepted(dialed)
	at := func(d door) context.Context { return context.WithValue(t.Context(), doorKey{}, d) }
	for name, c := range map[string]struct {
		ctx     context.Context
		door    door
		refused bool
	}{
		"no verdict":          {at(fromOwner), fromOwner, true},
		"a connection as is":  {connContext(at(fromOwner), here), fromOwner, true},
		"not of a listener":   {connContext(at(fromOwner), strictConn{proxy.Strict(here), nil}), fromOwner, true},
		"within this process": {connContext(at(fromOwner), strictConn{proxy.Strict(pipe), nil}), fromOwner, false},
		"of another kind":     {connContext(at(fromOwner), strictConn{proxy.Strict(other), nil}), fromOwner, true},
		"over a network":      {connContext(at(fromNetwork), here), fromNetwork, false},
	} {
		ex := &exchange{r: httptest.NewRequestWithContext(c.ctx, "GET", "/health", nil), door: c.door}
		if err := checkPeer(ex); (cove.ErrorCode(err) == cove.Forbidden) != c.refused || (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
