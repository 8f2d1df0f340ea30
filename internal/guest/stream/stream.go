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

	// Owned by the reader.
	cut  bool
	rest int // bytes still to read after the cut
}

// NewOutput returns the output at a file that does not block.
func NewOutput(file *os.File) *Output { return &Output{file: file} }

// uncounted exceeds the bytes that a terminal holds beyond its readable count: the kernel delivers output to the reader
// with a delay, but before it reports that there is none.
const uncounted = 64 << 10

// Cut implements guestd.Output: it wakes the reader, which reads the rest.
func (s *Output) Cut() { s.file.SetReadDeadline(time.Unix(1, 0)) }

func (s *Output) Close() error { return s.file.Close() }

func (s *Output) Read(p []byte) (n int, err error) {
	if !s.cut {
		if n, err = s.file.Read(p); !errors.Is(err, os.ErrDeadlineExceeded) {
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

// readRest reads what was available at the cut without waiting, so that no persistent writer can hold the stream open.
func (s *Output) readRest(fd int, p []byte) (int, error) {
	if !s.cut {
		there, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil {
			return 0, err
		}
		s.cut, s.rest = true, there+uncounted
	}
	for {
		n, err := unix.Read(fd, p[:min(len(p), s.rest)])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN, err == nil && n == 0:
			return 0, io.EOF
		case err != nil:
			return 0, err
		}
		s.rest -= n
		return n, nil
	}
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
