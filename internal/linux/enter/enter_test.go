//go:build linux

package enter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/transparent"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// over does a job at the other end of a connection.
func over(t *testing.T, j Job) (Done, error) {
	t.Helper()
	ours, file, err := unixconn.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer file.Close()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := unixconn.New(fd)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(theirs) }()
	done, err := Ask(ours, j)
	if err := <-served; err != nil {
		t.Error(err)
	}
	theirs.Close()
	return done, err
}

// TestJob: what a job gives comes over the connection, and an error as what it was.
func TestJob(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace to enter")
	}
	cmd := exec.Command("sleep", "infinity")
	cmd.Env = []string{"KEY=VALUE"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pid := cmd.Process.Pid
	group := t.TempDir()
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sockets := []netjoin.Socket{{Network: "tcp4", Address: "127.0.0.1:1"}, {Network: "udp6", Address: "[::1]:53"}}
	messages, err := transparent.Plan{TCPPort: 1, DNSPort: 53}.Messages()
	if err != nil {
		t.Fatal(err)
	}
	take := &Take{Messages: messages, Sockets: sockets}
	done, err := over(t, Job{PID: pid, Groups: []string{group}, Environ: true, Take: take, Socket: true})
	if err != nil {
		t.Fatal(err)
	}
	if string(done.Environ) != "KEY=VALUE\x00" || len(done.Sockets) != 3 {
		t.Errorf("%q, %d sockets", done.Environ, len(done.Sockets))
	}
	if wrote, err := os.ReadFile(filepath.Join(group, "cgroup.procs")); err != nil || len(wrote) == 0 {
		t.Errorf("into the group went %q, %v", wrote, err)
	}
	if _, err := over(t, Job{PID: pid, Take: take}); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("sockets that are there: %v", err)
	}
	for _, f := range done.Sockets {
		f.Close()
	}
	if _, err := over(t, Job{PID: os.Getpid(), Socket: true}); cove.ErrorCode(err) != cove.Conflict ||
		!strings.Contains(err.(*cove.Error).Hint, "of its own") {
		t.Errorf("this machine's network: %v", err)
	}
	_, err = over(t, Job{PID: pid, Sysctls: map[string]string{"user/none": "1"}})
	if err == nil || !strings.Contains(err.Error(), "/proc/sys/user/none") {
		t.Errorf("a setting that is not there: %v", err)
	}
}
