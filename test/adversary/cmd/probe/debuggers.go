package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// debuggers are attempts of processes that may trace others.
func debuggers() map[string]attempt {
	return map[string]attempt{
		"ptrace_init_as_any": initAsAny,
		"suspend_seccomp":    simple(suspendSeccomp),
		"seize_new":          seizeNew,
		"traced_by_parent":   tracedByParent,
		"hold_stopped":       holdStopped,
		"ptrace_getppid":     simple(func() error { return inject(unix.SYS_GETPPID, 0) }),
		"ptrace_unshare":     simple(func() error { return inject(unix.SYS_UNSHARE, unix.CLONE_NEWUTS|unix.CLONE_NEWUSER) }),
		"ptrace_mount":       simple(func() error { return inject(unix.SYS_MOUNT, 0) }),
		"ptrace_bpf":         simple(func() error { return inject(unix.SYS_BPF, 99) }),
	}
}

// initAsAny seizes PID 1 as each user of the namespace, with the capabilities of root inside where the caller has them.
func initAsAny([]string) (report, error) {
	runtime.LockOSThread()
	tried := 0
	var last error
	for id := range uintptr(65536) {
		if call(unix.SYS_SETRESUID, id, all, all) != nil { // the namespace has no such user
			continue
		}
		tried++
		err := call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)
		if err == nil {
			call(unix.SYS_PTRACE, unix.PTRACE_DETACH, 1, 0, 0)
			return report{detail: fmt.Sprint("as ", id)}, nil
		}
		last = err
	}
	if tried < 1000 {
		return report{}, fmt.Errorf("it became %d users only", tried)
	}
	return report{count: int64(tried)}, last
}

// suspendSeccomp has the kernel ignore the filter of a traced process.
func suspendSeccomp() error {
	const suspend = 1 << 21 // PTRACE_O_SUSPEND_SECCOMP
	return withChild(func(pid int) error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, suspend) })
}

// seizeNew seizes and stops every process as soon as it is there, until the file PATH is, and follows it to its end. It
// reports those that executed a program after they had stopped: they were seized before they were the user's. One that
// has stopped for its program first was the user's already.
func seizeNew(args []string) (report, error) {
	runtime.LockOSThread()
	emit(result("seize_new", report{detail: "seizing"}, nil))
	r := report{}
	next := os.Getpid() + 1
	for idle := 1; ; idle++ {
		if _, err := os.Stat(args[0]); err == nil {
			return r, nil
		}
		if idle%10_000 == 0 { // processes may have ended unseen, and the next has a later id
			id, err := latestID()
			if err != nil {
				return r, err
			}
			next = id + 1
		}
		for pid := next; pid < next+8; pid++ {
			if call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXEC) == nil {
				unix.PtraceInterrupt(pid)
				next, idle = pid+1, 0
				r.count++
				r.lines = append(r.lines, follow(pid)...)
				break
			}
		}
	}
}

// latestID returns the id of a process that it makes.
func latestID() (int, error) {
	cmd := exec.Command("/proc/self/exe", "true")
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// follow lets a traced process go on to its end, and reports the programs that it executed after its first stop.
func follow(pid int) (executed []string) {
	for stops := 0; ; stops++ {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
			return executed
		}
		if int(status)>>16 == unix.PTRACE_EVENT_EXEC && stops > 0 {
			exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
			executed = append(executed, strconv.Itoa(pid)+" "+exe)
		}
		signal := status.StopSignal()
		if signal == unix.SIGTRAP { // an event
			signal = 0
		}
		unix.PtraceCont(pid, int(signal))
	}
}

// tracedByParent makes its parent its tracer, stops for it by a signal and by executing a program, and ends with a
// status of its own.
func tracedByParent([]string) (report, error) {
	runtime.LockOSThread()
	if os.Getenv("COVE_PROBE_TRACED") != "" {
		fmt.Println("went on")
		os.Exit(7)
	}
	if err := call(unix.SYS_PTRACE, unix.PTRACE_TRACEME); err != nil {
		return report{}, err
	}
	if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGURG); err != nil { // which is ignored otherwise
		return report{}, err
	}
	return report{}, unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), "COVE_PROBE_TRACED=1"))
}

// holdStopped stops a child as its tracer, and holds it so; its arguments mark both.
func holdStopped(args []string) (report, error) {
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", append([]string{"hold"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return report{}, err
	}
	if _, err := unix.Wait4(cmd.Process.Pid, nil, 0, nil); err != nil {
		return report{}, err
	}
	emit(result("hold_stopped", report{detail: "traced"}, nil))
	return hold(args)
}

// inject has a traced child make a call in place of one of its own, after the filter has seen that, and returns how the
// call ended.
func inject(number, argument uint64) error {
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", "hold")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer unix.Wait4(pid, nil, 0, nil)
	defer cmd.Process.Kill()
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		return err
	}
	toCall := func() error { // to its beginning, or its end
		if err := unix.PtraceSyscall(pid, 0); err != nil {
			return err
		}
		_, err := unix.Wait4(pid, nil, 0, nil)
		return err
	}
	if err := toCall(); err != nil {
		return err
	}
	if err := replaceCall(pid, number, argument); err != nil {
		return err
	}
	if err := toCall(); err != nil {
		return err
	}
	answer, err := answerOf(pid)
	if err == nil && answer < 0 && answer > -4096 {
		return unix.Errno(-answer)
	}
	return err
}
