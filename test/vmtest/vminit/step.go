package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

// runStep runs one step to its end, tells emit its output, and removes what it leaves behind.
func runStep(step protocol.Step, emit func([]byte)) protocol.Done {
	before := takeInventory()
	read, write, err := os.Pipe()
	if err != nil {
		return protocol.Done{Error: err.Error()}
	}
	defer read.Close()
	pid, err := start(step, write)
	write.Close()
	if err != nil {
		return protocol.Done{Error: err.Error()}
	}

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		buf := make([]byte, 32<<10)
		for {
			n, err := read.Read(buf)
			if n > 0 {
				emit(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()

	fired := make(chan struct{})
	timer := time.AfterFunc(step.Timeout, func() {
		defer close(fired)
		// What every blocked task waits for, to the console.
		_ = os.WriteFile("/proc/sysrq-trigger", []byte("w"), 0)
		killAll()
	})
	status := reap(pid)
	timedOut := !timer.Stop()
	if timedOut {
		<-fired
	}
	left := settle()
	killAll()
	reapAll()
	<-drained
	left = append(left, cleanUp(before)...)
	return protocol.Done{ExitCode: exitCode(status), TimedOut: timedOut, Left: left}
}

func start(step protocol.Step, output *os.File) (int, error) {
	a, err := findAccount(step.As)
	if err != nil {
		return 0, err
	}
	if len(step.Args) == 0 {
		return 0, errors.New("a step without a command")
	}
	if err := a.emptySession(); err != nil {
		return 0, err
	}
	cgroup, err := os.Open(filepath.Join(cgroupRoot, a.session))
	if err != nil {
		return 0, err
	}
	defer cgroup.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	dir := step.Dir
	if dir == "" {
		dir = a.home
	}
	if err := setOOMScore(a.oomScore); err != nil {
		return 0, err
	}
	defer setOOMScore(0)
	return syscall.ForkExec(step.Args[0], step.Args, &syscall.ProcAttr{
		Dir:   dir,
		Env:   append(a.environment(), step.Env...),
		Files: []uintptr{null.Fd(), output.Fd(), output.Fd()},
		Sys: &syscall.SysProcAttr{
			Setsid:      true,
			Credential:  &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid())},
			UseCgroupFD: true,
			CgroupFD:    int(cgroup.Fd()),
		},
	})
}

// setOOMScore sets this process's oom_score_adj, which a child inherits along
// with the rule that only root may have less.
func setOOMScore(score int) error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}

// reap waits for pid and for every orphan that ends before it.
func reap(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		if got == pid || errors.Is(err, unix.ECHILD) {
			return status
		}
	}
}

// reapAll waits until no child is left.
func reapAll() {
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

// killAll kills every process but this one.
func killAll() {
	_ = unix.Kill(-1, unix.SIGKILL)
}

func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
