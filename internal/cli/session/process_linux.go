package session

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
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
