//go:build linux

// Package forkserver has executors forked in namespaces and control groups.
//
// The kernel copies the page tables of a process that forks into a new user namespace, so that its fork costs time for
// all of its memory: milliseconds for a server, during which none of its threads can have more memory. And an executor
// has a copy of the memory. [Launch] starts a fork server, a small process, which forks the executors instead.
package forkserver

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// Spec is an executor to start, in new namespaces and a session of its own. It has all capabilities of its namespaces,
// and four files: the last one is the connection.
type Spec struct {
	Namespaces uintptr `json:"namespaces"` // CLONE_NEW* flags
	// As is the user of the host who makes the namespaces: the kernel counts for a user what it counts for no group.
	As int `json:"as"`
}

// Op is the part of a start that failed.
type Op string

const (
	OpEnter  Op = "enter the control group"
	OpBecome Op = "become another user"
	OpFork   Op = "fork"
	OpCopy   Op = "copy the program that is in sandboxes"
)

// Error is a failed start.
type Error struct {
	Op    Op
	Errno syscall.Errno // 0 if another error is the cause
	Cause error
}

func (e *Error) Error() string { return string(e.Op) + ": " + e.Unwrap().Error() }

func (e *Error) Unwrap() error {
	if e.Errno != 0 {
		return e.Errno
	}
	return e.Cause
}

func failed(op Op, err error) *Error {
	e := &Error{Op: op, Cause: err}
	errors.As(err, &e.Errno)
	return e
}

// fork forks an executor from the calling thread, which is the user of the spec for as long: the kernel counts for the
// one who makes namespaces. The executor enters the groups of version 1 by itself, before it takes a script: were a
// thread of this process in them for the fork, all of the process would count among those to kill or to freeze.
// A lost error says that the thread could not become itself again, and is of no further use.
func fork(s Spec, door cgroup.Door, files []*os.File) (p *os.Process, err *Error, lost error) {
	if own := os.Geteuid(); s.As != own {
		if became := becomeUser(s.As); became != nil {
			return nil, failed(OpBecome, became), nil
		}
		defer func() { lost = becomeUser(own) }()
	}
	p, failure := forkExecutor(s.Namespaces, door, files)
	if failure != nil {
		return nil, failed(OpFork, failure), nil
	}
	return p, nil, nil
}

func forkExecutor(namespaces uintptr, door cgroup.Door, files []*os.File) (*os.Process, error) {
	if len(files) != 4 {
		return nil, errors.New("an executor has four files")
	}
	var fds [4]int
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	group, tasks := -1, make([]int, len(door.Tasks))
	if door.Dir != nil {
		group = int(door.Dir.Fd())
	}
	for i, f := range door.Tasks {
		tasks[i] = int(f.Fd())
	}
	pid, err := executor.Clone(namespaces, group, tasks, fds)
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// OnOwnThread calls f on a thread that ends with the goroutine, since it stays locked. The main thread cannot end, so
// it is avoided.
func OnOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); OnOwnThread(f) }()
	<-done
	runtime.UnlockOSThread()
}

// becomeUser gives the calling thread all three ids of a user, and leaves it root's capabilities. Where a process may
// not keep them so, the thread stays as it is.
func becomeUser(uid int) error {
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECUREBITS, uintptr(bits|keepCapabilities), 0, 0, 0)
	}
	if err != nil {
		return nil
	}
	// The C library's call, and that of package syscall, change the ids of every thread.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	return nil
}

// keepCapabilities is SECBIT_NO_SETUID_FIXUP (capabilities(7)).
const keepCapabilities = 1 << 2
