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

// Process is a process that has been started. It keeps its id until Wait, which is called once, has returned. Kill
// returns os.ErrProcessDone afterwards.
type Process interface {
	PID() int
	Kill() error
	Wait() error
}

// spawn starts a process whose mounts come from a namespace, or from that of this process if it is nil.
func spawn(s Spec, door cgroup.Door, files []*os.File, mounts *os.File) (Process, error) {
	p, err := fork(s, door, files, mounts)
	if err != nil {
		return nil, err
	}
	return child{p}, nil
}

type child struct{ process *os.Process }

func (c child) PID() int    { return c.process.Pid }
func (c child) Kill() error { return c.process.Kill() }
func (c child) Wait() error { _, err := c.process.Wait(); return err }

func fork(s Spec, door cgroup.Door, files []*os.File, mounts *os.File) (p *os.Process, err error) {
	start := func() {
		if p, err = forkExecutor(s.Namespaces, door, files); err != nil {
			err = failed(OpFork, err)
		}
	}
	other := s.As != os.Geteuid()
	if door.Dir != nil && !other && mounts == nil {
		start()
		return p, err
	}
	done := make(chan int)
	go OnOwnThread(func() {
		defer func() { done <- unix.Gettid() }()
		if mounts != nil {
			enterMounts(mounts) // in the other one, a start takes longer
		}
		if entered := door.Enter(); entered != nil {
			err = failed(OpEnter, entered)
			return
		}
		if other {
			if became := becomeUser(s.As); became != nil {
				err = failed(OpBecome, became)
				return
			}
		}
		start()
	})
	if thread := <-done; len(door.Tasks) > 0 {
		awaitEnd(thread)
	}
	return p, err
}

// awaitEnd returns when a thread of this process has ended, which is about to: until then it counts as a task of the
// control group that it has entered, in the place of one of the user's.
func awaitEnd(thread int) {
	for unix.Tgkill(unix.Getpid(), thread, 0) == nil {
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

func forkExecutor(namespaces uintptr, door cgroup.Door, files []*os.File) (*os.Process, error) {
	if len(files) != 4 {
		return nil, errors.New("an executor has four files")
	}
	var fds [4]int
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	group := -1
	if door.Dir != nil {
		group = int(door.Dir.Fd())
	}
	pid, err := executor.Clone(namespaces, group, fds)
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

// becomeUser gives the calling thread, which has to end soon, all three ids of another user, and leaves it root's
// capabilities. Where a process may not keep them so, the thread stays as it is.
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
