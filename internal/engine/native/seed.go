//go:build linux

package native

import (
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

// fork starts a process in the group. A seed is used once.
func (s *seed) fork(program string, args []string, attr *os.ProcAttr) (p *os.Process, err error) {
	if s.fd != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(s.fd.Fd())
		defer s.fd.Close()
		return os.StartProcess(program, args, attr)
	}
	done := make(chan struct{})
	s.work <- func() {
		p, err = os.StartProcess(program, args, attr)
		close(done)
	}
	<-done
	return p, err
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
