package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/test/delegate"
)

// TestForwardIsOfOneUser: what a forwarded port leads to is reached by the user's own programs, and root's.
func TestForwardIsOfOneUser(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if to := os.Getenv("COVE_TEST_FORWARD"); to != "" { // as another user
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("it is served")
		}
		return
	}
	own, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	at, err := ln.Accept()
	if err == nil {
		err = session.OwnPeer(at)
		at.Close()
	}
	if err != nil {
		t.Errorf("its own: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	program := t.TempDir() + "/forward.test"
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for dir := program; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	args := append(delegate.As(61006), program, "-test.run=^TestForwardIsOfOneUser$")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "COVE_TEST_FORWARD="+ln.Addr().String())
	ended := make(chan error)
	go func() {
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		ended <- err
	}()
	other, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.OwnPeer(other); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("another user's: %v", err)
	}
	other.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
