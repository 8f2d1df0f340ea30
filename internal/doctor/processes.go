//go:build linux

package doctor

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

const seccompFix = "needs a kernel built with CONFIG_SECCOMP_FILTER (every distribution's is), on amd64 or arm64"

// checkPIDFD opens a child by a descriptor, kills it, and waits for it.
func checkPIDFD(ctx context.Context, h *host) outcome {
	fix := "needs Linux 5.4 or later"
	cmd := h.command(ctx, trial{name: "wait"})
	fd := -1
	cmd.SysProcAttr.PidFD = &fd
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return unknown("a pipe", err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		return fail("clone with CLONE_PIDFD: "+err.Error(), fix)
	}
	if fd < 0 {
		cmd.Process.Kill()
		cmd.Wait()
		return fail("clone gave no descriptor", fix)
	}
	defer unix.Close(fd)
	signalled := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	if signalled != nil {
		cmd.Process.Kill()
	}
	var si unix.Siginfo
	waited := unix.Waitid(unix.P_PIDFD, fd, &si, unix.WEXITED|unix.WNOWAIT, nil)
	cmd.Wait()
	for name, err := range map[string]error{"pidfd_send_signal": signalled, "waitid(P_PIDFD)": waited} {
		if err != nil {
			return fail(name+": "+err.Error(), fix)
		}
	}
	if state, isUnix := cmd.ProcessState.Sys().(syscall.WaitStatus); !isUnix || state.Signal() != syscall.SIGTERM {
		return fail(fmt.Sprintf("the child ended with %v", cmd.ProcessState), fix)
	}
	return ok("started, ended and waited for a child by its descriptor")
}
