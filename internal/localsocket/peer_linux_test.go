package localsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain connects instead of testing where a test has started this program for that.
func TestMain(m *testing.M) {
	if at := os.Getenv("COVE_TEST_CONNECT"); at != "" {
		c, err := net.Dial("unix", at)
		if err != nil {
			os.Exit(3)
		}
		io.Copy(io.Discard, c) // until the server has looked
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestCheckPeer: a process in another user or process namespace is refused, whatever its id, and one beside this
// passes.
func TestCheckPeer(t *testing.T) {
	at := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	own := []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	group := []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	for _, c := range []struct {
		name string
		sys  *syscall.SysProcAttr
		want string
	}{
		{"beside this one", &syscall.SysProcAttr{}, ""},
		{"in a user namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: own,
			GidMappings: group}, "another user namespace"},
		{"in a process namespace of this user namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID},
			"another pid namespace"},
		{"in both", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, UidMappings: own,
			GidMappings: group}, "another user namespace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.sys.Cloneflags == syscall.CLONE_NEWPID && os.Getuid() != 0 {
				t.Skip("needs root")
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Env, cmd.SysProcAttr = append(os.Environ(), "COVE_TEST_CONNECT="+at), c.sys
			if err := cmd.Start(); err != nil {
				t.Skipf("no namespaces: %v", err)
			}
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			err = CheckPeer(conn)
			conn.Close()
			if ended := cmd.Wait(); ended != nil {
				t.Errorf("not tested: %v", ended)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := CheckPeer(here); err != nil {
		t.Errorf("a connection within this process: %v", err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	network, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	if err := CheckPeer(network); err == nil {
		t.Error("a connection of a network passes")
	}
}

// TestNested: of a process of root, whose namespaces another user cannot compare with its own, the ids tell that it is
// in a container.
func TestNested(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for flags, want := range map[uintptr]bool{0: true, syscall.CLONE_NEWPID: false} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := notNested(cmd.Process.Pid); (err == nil) != want {
			t.Errorf("with the flags %#x: %v", flags, err)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// TestHidden: of a process that /proc does not show, the error says what may hide it.
func TestHidden(t *testing.T) {
	const none = 1 << 30 // beyond pid_max
	for _, err := range []error{notNested(none), sameNamespace(none, "user")} {
		if err == nil || !strings.Contains(err.Error(), "hidepid") || !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%v", err)
		}
	}
}

// TestCheckPeerThatHasEnded: a process that has ended is not taken for one that has its number now.
func TestCheckPeerThatHasEnded(t *testing.T) {
	at := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "COVE_TEST_CONNECT="+at)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cmd.Process.Kill()
	cmd.Wait()
	if err := CheckPeer(conn); err == nil {
		t.Error("it passes")
	}
}
