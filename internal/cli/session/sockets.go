package session

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/instance"
)

// serverSocket is the socket of "cove serve" below the run directory. instanceSockets
// matches the sockets of all processes of Cove that live.
const (
	serverSocket    = "cove.sock"
	instanceSockets = instance.Dir + "/*.sock"
)

// liveSockets lists the sockets below the run directory that answer, the server's first.
func liveSockets(ctx context.Context, runDir string) []string {
	var live []string
	if path := filepath.Join(runDir, serverSocket); Answers(ctx, path) {
		live = append(live, path)
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(runDir), instanceSockets))
	if err != nil {
		return live
	}
	slices.Sort(found)
	for _, path := range found {
		if Answers(ctx, path) {
			live = append(live, path)
		}
	}
	return live
}

// escapeGlob keeps a directory's name from being read as a pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// Answers reports whether a process listens on a unix socket. A file that is
// there and refuses belongs to a process that was killed.
func Answers(ctx context.Context, path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// How long it takes to look for a gateway that has gone again, at first and at most.
const (
	SoonestRetry = 50 * time.Millisecond
	LatestRetry  = 2 * time.Second
)

// Process is a process that is waited for, which is not a child.
type Process struct{ *os.File }

// Wait waits for the process's end, or ctx's.
func (p Process) Wait(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}, int(LatestRetry.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 {
			return
		}
	}
}

// Terminate asks a process to end.
func (p Process) Terminate() error {
	if err := unix.PidfdSendSignal(int(p.Fd()), unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return cove.Errorf(cove.Forbidden, "cannot stop the server: %w", err).WithHint("it belongs to another user")
	}
	return nil
}

func WatchProcess(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // 5.10
	if errors.Is(err, unix.ESRCH) {
		return Process{}, cove.Errorf(cove.NotFound, "there is no process %d", pid)
	}
	if err != nil {
		return Process{}, cove.Errorf(cove.InvalidArgument, "cannot watch process %d: %w", pid, err)
	}
	return Process{os.NewFile(uintptr(fd), "process")}, nil
}
