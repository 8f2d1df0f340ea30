//go:build unix

package ui

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Waker interrupts waiting for a user's input.
type Waker struct {
	woken, wake *os.File // the ends of a pipe

	mu  sync.Mutex
	set bool // a byte is in the pipe
}

// NewWaker returns a waker; close it after use.
func NewWaker() (*Waker, error) {
	woken, wake, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &Waker{woken: woken, wake: wake}, nil
}

// Wake ends what waits, now or next.
func (w *Waker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.set {
		_, err := w.wake.Write([]byte{0})
		w.set = err == nil
	}
}

// Wait waits until Wake was called, and takes that back.
func (w *Waker) Wait() {
	w.woken.Read(make([]byte, 1))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set = false
}

// Input waits for input at f. It reports false when Wake was called, which Wait takes back.
func (w *Waker) Input(f *os.File) (ready bool, err error) {
	for {
		fds := []unix.PollFd{
			{Fd: int32(f.Fd()), Events: unix.POLLIN},
			{Fd: int32(w.woken.Fd()), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return false, err
		}
		if fds[1].Revents != 0 || fds[0].Revents != 0 {
			return fds[1].Revents == 0, nil
		}
	}
}

// Close ends the waker. Nothing waits any more.
func (w *Waker) Close() {
	w.wake.Close()
	w.woken.Close()
}

// unread reports whether the reader of f has gone.
func unread(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = conn.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone || err != nil
}

// Foreground reports whether this process may read from a terminal: it would be stopped otherwise.
func Foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// obey has nothing to do: terminals obey control sequences.
func obey(...*os.File) {}
