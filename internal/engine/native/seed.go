//go:build linux

package native

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// removalPatience is how long the kernel may take to let go of a control group whose processes have been killed.
const removalPatience = 5 * time.Second

// A seed is a control group in which one process can be born. On version 1 a thread has to enter the group first, which
// waits for the whole machine (an RCU grace period).
type seed struct {
	group *cgroup.Group
	fd    *os.File // version 2: for CLONE_INTO_CGROUP
	work  chan func()
}

// newSeed makes a group and, on version 1, a thread inside it.
func newSeed(h *cgroup.Hierarchy, name string) (*seed, error) {
	g, err := h.Create(name)
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	s := &seed{group: g}
	if h.Version() == 2 {
		s.fd, err = g.FD()
	} else {
		s.work = make(chan func())
		ready := make(chan error)
		go s.inside(ready)
		err = <-ready
	}
	if err != nil {
		s.discard()
		return nil, fmt.Errorf("enter a control group: %w", err)
	}
	return s, nil
}

// inside runs on a thread that enters the group, does one piece of work and ends with its goroutine, because that is
// still locked to it.
func (s *seed) inside(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end: take another while holding this one.
		done := make(chan struct{})
		go func() { defer close(done); s.inside(ready) }()
		<-done
		runtime.UnlockOSThread()
		return
	}
	err := s.group.Enter()
	ready <- err
	if err != nil {
		return
	}
	if f := <-s.work; f != nil {
		f()
	}
}

// fork starts a process in the group, which makes its namespaces as a user of the host, if that is another than this
// process's: the kernel counts for that user what it counts for no group. A seed is used once.
func (s *seed) fork(as int, program string, args []string, attr *os.ProcAttr) (p *os.Process, err error) {
	start := func() { p, err = os.StartProcess(program, args, attr) }
	work := s.work
	if s.fd != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(s.fd.Fd())
		defer s.fd.Close()
	}
	if as != os.Geteuid() {
		plain := start
		start = func() {
			if changed := threadAs(as, plain); changed != nil {
				err = changed
			}
		}
		if s.fd != nil { // any thread will do, but not this goroutine's
			work = make(chan func())
			go func() { (<-work)() }()
		}
	}
	if work == nil {
		start()
		return p, err
	}
	done := make(chan struct{})
	work <- func() {
		defer close(done)
		start()
	}
	<-done
	return p, err
}

// threadAs calls f on a thread of root's that has all three ids of another user, and its capabilities still. Where a
// process may not keep them so, f is called as it is. The goroutine has to end soon: it takes the thread with it if
// that cannot become what it was.
func threadAs(uid int, f func()) error {
	runtime.LockOSThread()
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECUREBITS, uintptr(bits|keepCapabilities), 0, 0, 0)
	}
	if err != nil {
		f()
		runtime.UnlockOSThread()
		return nil
	}
	failed := setThreadUser(uid)
	if failed == nil {
		f()
		err = setThreadUser(0)
	}
	if err = cmp.Or(err, unix.Prctl(unix.PR_SET_SECUREBITS, uintptr(bits), 0, 0, 0)); err == nil {
		runtime.UnlockOSThread()
	}
	if failed != nil {
		return fmt.Errorf("a thread cannot become user %d: %w", uid, failed)
	}
	return nil
}

// keepCapabilities is SECBIT_NO_SETUID_FIXUP (capabilities(7)).
const keepCapabilities = 1 << 2

// setThreadUser changes the ids of this thread only, unlike the C library's call and that of package syscall.
func setThreadUser(uid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	return nil
}

// discard removes a seed that has not been used.
func (s *seed) discard() {
	if s.fd != nil {
		s.fd.Close()
	}
	if s.work != nil {
		close(s.work)
	}
	s.group.Remove(removalPatience)
}
