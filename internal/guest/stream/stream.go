//go:build linux

// Package stream reads and writes the guest's ends of a process's streams.
package stream

import (
	"cmp"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Output is the guest's end of a process's output: a pipe or a terminal. It implements guestd.Output.
type Output struct {
	file *os.File
	pipe bool // of which another process has the description, too

	// Owned by the reader.
	cut  bool
	rest int // bytes still to read after the cut
}

// NewOutput returns the output at a file that does not block.
func NewOutput(file *os.File) *Output { return &Output{file: file} }

// NewPipeOutput returns the output at a pipe that a hostile process has made. It may have the pipe block later, and
// does not keep a reader.
func NewPipeOutput(file *os.File) *Output { return &Output{file: file, pipe: true} }

// uncounted exceeds the bytes that a terminal holds beyond its readable count: the kernel delivers output to the reader
// with a delay, but before it reports that there is none.
const uncounted = 64 << 10

// Cut implements guestd.Output: it wakes the reader, which reads the rest.
func (s *Output) Cut() { s.file.SetReadDeadline(time.Unix(1, 0)) }

func (s *Output) Close() error { return s.file.Close() }

func (s *Output) Read(p []byte) (n int, err error) {
	if !s.cut {
		if n, err = s.wait(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	conn, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	// conn.Read would obey the deadline even when bytes are available.
	if cerr := conn.Control(func(fd uintptr) { n, err = s.readRest(int(fd), p) }); cerr != nil {
		return 0, cerr
	}
	return n, err
}

// wait reads what there is, and waits for that.
func (s *Output) wait(p []byte) (n int, err error) {
	if !s.pipe {
		return s.file.Read(p)
	}
	conn, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := conn.Read(func(fd uintptr) bool {
		n, err = s.read(int(fd), p)
		return err != unix.EAGAIN
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

// read reads what there is. For a pipe it does not depend on the description's flag, which others can change.
func (s *Output) read(fd int, p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if s.pipe {
			part := unix.Iovec{Base: &p[0]}
			part.SetLen(len(p))
			n, err = unix.Vmsplice(fd, []unix.Iovec{part}, unix.SPLICE_F_NONBLOCK)
		} else {
			n, err = unix.Read(fd, p)
		}
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readRest reads what was available at the cut without waiting, so that no persistent writer can hold the stream open.
func (s *Output) readRest(fd int, p []byte) (int, error) {
	if !s.cut {
		there, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil {
			return 0, err
		}
		s.cut, s.rest = true, there+uncounted
	}
	n, err := s.read(fd, p[:min(len(p), s.rest)])
	switch {
	case err == unix.EAGAIN, err == nil && n == 0:
		return 0, io.EOF
	case err != nil:
		return 0, err
	}
	s.rest -= n
	return n, nil
}

// Keyboard writes to a terminal, by its master, as a keyboard does: Close writes the end-of-file character, and leaves
// the output open.
type Keyboard struct{ Terminal *os.File }

func (k Keyboard) Close() error { _, err := k.Write([]byte{4}); return err }

// Write fails with EIO where there is no room, and no process has the terminal open. The kernel answers EAGAIN there,
// and poll returns at once with POLLHUP.
func (k Keyboard) Write(p []byte) (n int, err error) {
	conn, err := k.Terminal.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := conn.Write(func(fd uintptr) (done bool) {
		for err = nil; n < len(p); {
			var some int
			some, err = unix.Write(int(fd), p[n:])
			n += max(some, 0)
			switch {
			case err == unix.EAGAIN && hungUp(int(fd)):
				err = unix.EIO
				return true
			case err == unix.EAGAIN:
				return false
			case err != nil && err != unix.EINTR:
				return true
			}
		}
		return true
	})
	return n, cmp.Or(waitErr, err)
}

// hungUp reports whether no process has a terminal open, by its master.
func hungUp(master int) bool {
	p := []unix.PollFd{{Fd: int32(master)}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents&unix.POLLHUP != 0
}

// Pipe makes a pipe for a process, which writes to it if output; only the guest's end is non-blocking.
func Pipe(output bool) (theirs, ours *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	t, o := p[0], p[1]
	if output {
		t, o = o, t
	}
	if err := unix.SetNonblock(o, true); err != nil {
		unix.Close(t)
		unix.Close(o)
		return nil, nil, err
	}
	return BlockingFile(t), os.NewFile(uintptr(o), "pipe"), nil
}

// BlockingFile wraps a descriptor so that Fd does not change its mode.
func BlockingFile(fd int) *os.File { return os.NewFile(uintptr(fd), "stream") }
