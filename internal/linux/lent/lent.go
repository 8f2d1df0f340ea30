//go:build linux

// Package lent ends the use of sockets that a process which is not trusted has, too, since it has made them.
//
// Whether calls on a socket block is a property of the socket, not of a descriptor. The other process can have accept
// wait in the kernel, where neither a deadline nor Close reaches it: Close of package net waits for the call.
package lent

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// again is the time after which sockets are shut down once more: the other process may have them listen again.
const again = 10 * time.Millisecond

// Sockets are descriptors of lent sockets, which stay open when those of package net are closed.
type Sockets struct {
	files    []*os.File
	stopped  chan struct{}
	shutting sync.WaitGroup
}

// Take opens sockets once more, before they are closed.
func Take(sockets ...syscall.Conn) *Sockets {
	s := &Sockets{stopped: make(chan struct{})}
	for _, socket := range sockets {
		raw, err := socket.SyscallConn()
		if err != nil {
			continue // it is closed
		}
		raw.Control(func(fd uintptr) {
			own, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			if err != nil { // no descriptor is left
				unix.Shutdown(int(fd), unix.SHUT_RDWR)
				return
			}
			s.files = append(s.files, os.NewFile(uintptr(own), "socket"))
		})
	}
	return s
}

// End shuts the sockets down, so that calls which wait on them return, and keeps them so until Free.
func (s *Sockets) End() {
	s.shut()
	s.shutting.Go(func() {
		for {
			select {
			case <-s.stopped:
				return
			case <-time.After(again): // either: the next round ends
				s.shut()
			}
		}
	})
}

func (s *Sockets) shut() {
	for _, f := range s.files {
		unix.Shutdown(int(f.Fd()), unix.SHUT_RDWR)
	}
}

// Free closes the descriptors, when all of package net have been closed.
func (s *Sockets) Free() {
	close(s.stopped)
	s.shutting.Wait()
	for _, f := range s.files {
		f.Close()
	}
}
