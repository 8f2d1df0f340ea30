package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processes are attempts at other processes, and processes that do not want to go (C1, C9, P5).
func processes() map[string]attempt {
	return map[string]attempt{
		"kill":               killOne,
		"kill_all":           simple(func() error { return unix.Kill(-1, unix.SIGKILL) }),
		"pids":               pidList,
		"stubborn":           stubborn,
		"daemon":             daemon,
		"stop_self":          func([]string) (report, error) { unix.Kill(os.Getpid(), unix.SIGSTOP); return report{}, nil },
		"abort":              abort,
		"core_limit":         coreLimit,
		"core_limit_set":     coreLimitSet,
		"core_limit_set_old": coreLimitSetOld,
		"abort_and_look":     abortAndLook,
		"exec_memfd":         simple(execMemfd),
		"exec_file":          simple(func() error { return exec.Command("/proc/self/exe", "true").Run() }),
		"prlimit_init":       simple(func() error { return prlimitOf(1) }),
		"affinity_init":      simple(func() error { var set unix.CPUSet; set.Set(0); return unix.SchedSetaffinity(1, &set) }),
		"sigqueue_init": simple(func() error {
			var info [128]byte
			return call(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(unix.SIGTERM), at(&info))
		}),
		"pidfd_signal": simple(pidfdSignal),
		"fork_exit":    func(args []string) (report, error) { return orphans(args) },
		"loop": func([]string) (report, error) {
			for { //nolint:staticcheck // it is to use a processor
			}
		},
	}
}

// killOne sends SIGNAL to PID.
func killOne(args []string) (report, error) {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	sig, err := strconv.Atoi(args[1])
	if err != nil {
		return report{}, err
	}
	return report{}, unix.Kill(pid, unix.Signal(sig))
}

// pidList reports every process that can be seen, with its command line.
func pidList([]string) (report, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return report{}, err
	}
	var r report
	for _, d := range dirs {
		cmdline, _ := os.ReadFile(d + "/cmdline")
		r.lines = append(r.lines, fmt.Sprintf("%s %q", filepath.Base(d), cmdline))
	}
	r.count = int64(len(dirs))
	return r, nil
}

// stubborn ignores every signal that can be ignored.
func stubborn([]string) (report, error) {
	signal.Ignore()
	return hold(nil)
}

// daemon leaves a session of its own behind: fork, setsid, fork, hold; the arguments mark the process.
func daemon(args []string) (report, error) {
	if len(args) > 1 && args[0] == "again" {
		return stubborn(nil)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"daemon", "again"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return report{}, err
	}
	time.Sleep(100 * time.Millisecond)
	return report{count: int64(cmd.Process.Pid)}, nil
}

// abort dies of SIGABRT in directory DIR, as a process does that dumps core.
func abort(args []string) (report, error) {
	if err := os.Chdir(args[0]); err != nil {
		return report{}, err
	}
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	signal.Reset(unix.SIGABRT)
	runtime.LockOSThread()
	// The runtime has a handler of its own: put the default action back.
	var action [4]uint64
	if err := call(unix.SYS_RT_SIGACTION, uintptr(unix.SIGABRT), at(&action), 0, 8); err != nil {
		return report{}, err
	}
	return report{}, unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGABRT)
}

// coreLimit reports the hard limit of core dumps.
func coreLimit([]string) (report, error) {
	var limit unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &limit)
	return report{count: int64(limit.Max), detail: fmt.Sprintf("soft %d hard %d", limit.Cur, limit.Max)}, err
}

// coreLimitSet sets the limit of core dumps to N: a limit of 1 is what keeps a
// host's core handler from being started, so it must not be lowered to 0.
func coreLimitSet(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, changedCoreLimit(v[0], unix.Prlimit(0, unix.RLIMIT_CORE,
		&unix.Rlimit{Cur: uint64(v[0]), Max: uint64(v[0])}, nil))
}

// changedCoreLimit believes the limit, not the call.
func changedCoreLimit(want uintptr, err error) error {
	var limit unix.Rlimit
	if now := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &limit); err == nil && now == nil && limit.Cur != uint64(want) {
		return refusal("UNCHANGED")
	}
	return err
}

// coreLimitSetOld does it by the older call.
func coreLimitSetOld(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, changedCoreLimit(v[0], call(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE,
		at(&unix.Rlimit{Cur: uint64(v[0]), Max: uint64(v[0])})))
}

// abortAndLook has a child crash and reports whether a core file is there.
func abortAndLook([]string) (report, error) {
	dir, err := os.MkdirTemp("", "core")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(dir)
	exec.Command("/proc/self/exe", "abort", dir).Run()
	found, err := filepath.Glob(dir + "/core*")
	if err == nil && len(found) == 0 {
		err = empty
	}
	return report{lines: found}, err
}

// execMemfd runs a program that was never a file.
func execMemfd() error {
	fd, err := unix.MemfdCreate("cove", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, self); err != nil {
		return err
	}
	return exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd), "true").Run()
}

// prlimitOf changes a limit of pid to what it is.
func prlimitOf(pid int) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
}

// pidfdSignal signals PID 1 through a descriptor; signal 0 changes nothing.
func pidfdSignal() error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.PidfdSendSignal(fd, 0, nil, 0)
}

// orphans leaves N grandchildren that exit at once, more than the sandbox may
// have at a time: each has to be reaped by PID 1.
func orphans(args []string) (report, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	var r report
	for range n {
		for try := 0; ; try++ {
			err = orphan()
			if !errors.Is(err, unix.EAGAIN) || try > 500 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		if err != nil {
			return r, err
		}
		r.count++
	}
	return r, nil
}

// orphan forks a child that forks a grandchild; both exit, the child first.
func orphan() error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		_, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
		}
	}
	if errno != 0 {
		return errno
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil {
		return err
	}
	if code := status.ExitStatus(); code != 0 {
		return unix.Errno(code)
	}
	return nil
}
