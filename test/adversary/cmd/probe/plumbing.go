package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// plumbing is what the suite needs beside attempts: processes that stay, and
// the throw-away environment of the positive controls.
func plumbing() map[string]attempt {
	return map[string]attempt{
		"hold":        hold,
		"init":        initRun,
		"serve":       serve,
		"true":        simple(func() error { return nil }),
		"sweep-child": sweepChild,
		"fuzz-child":  fuzzChild,
		"echo":        func(args []string) (report, error) { return report{detail: strings.Join(args, " ")}, nil },
		"env":         func([]string) (report, error) { return report{lines: os.Environ()}, nil },
	}
}

// hold prints that it runs and then waits to be killed; its arguments mark it
// for whoever looks for it in a process list.
func hold([]string) (report, error) {
	emit(result("hold", report{detail: "holding"}, nil))
	time.Sleep(time.Hour)
	return report{}, nil
}

// initRun is PID 1 of the pid namespace of a positive control: it makes mounts private, mounts the namespace's own
// /proc, and runs "probe ARG…" as its child.
func initRun(args []string) (report, error) {
	signal.Ignore(unix.SIGHUP)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return report{}, err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return report{}, err
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if as, err := strconv.ParseUint(os.Getenv("COVE_PROBE_AS"), 10, 32); err == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as), Gid: uint32(as)}}
	}
	err := cmd.Run()
	if cmd.ProcessState != nil {
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			os.Exit(128 + int(status.Signal()))
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return report{}, err
}

// withChild runs f on a child of the caller's own that only sleeps.
func withChild(f func(pid int) error) error {
	cmd := exec.Command("/proc/self/exe", "hold")
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	return f(cmd.Process.Pid)
}
