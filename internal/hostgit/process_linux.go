package hostgit

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const install = "install it: apt-get install git"

// command returns git with limits. Its processes end with the context.
func (l Limits) command(ctx context.Context, program string, args []string) (*exec.Cmd, error) {
	script, err := l.script()
	if err != nil {
		return nil, err
	}
	// The shell parses only numbers, and passes the arguments on unparsed.
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", script, "git", program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, nil
}

// system are the variables of this system that git needs.
func system() []string { return nil }

// script returns a shell script that sets the limits and executes its arguments: the limits hold from the first
// instruction, which prlimit(2) from outside could not ensure. Stricter limits are kept.
func (l Limits) script() (string, error) {
	s := "ulimit -c 0"
	for _, limit := range []struct {
		flag     string
		resource int
		value    int64
		unit     int64 // the shell's unit
	}{{"-v", unix.RLIMIT_AS, l.Memory, 1 << 10}, {"-f", unix.RLIMIT_FSIZE, l.FileSize, 512},
		{"-t", unix.RLIMIT_CPU, int64(l.CPU / time.Second), 1}} {
		var now unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &now); err != nil {
			return "", err
		}
		if limit.value > 0 && uint64(limit.value) < now.Max {
			s += fmt.Sprintf(" && ulimit %s %d", limit.flag, max(1, limit.value/limit.unit))
		}
	}
	return s + ` && exec "$@"`, nil
}
