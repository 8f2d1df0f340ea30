//go:build linux

package pid1

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stream is the guest's end of a process's output: a pipe or a terminal, non-blocking. It implements guestd.Output.
type stream struct {
	file *os.File

	// Owned by the reader.
	cut  bool
	rest int // bytes still to read after the cut
}

// uncounted exceeds the bytes that a terminal holds beyond its readable count: the kernel delivers output to the reader
// with a delay, but before it reports that there is none.
const uncounted = 64 << 10

// Cut implements guestd.Output: it wakes the reader, which reads the rest.
func (s *stream) Cut() { s.file.SetReadDeadline(time.Unix(1, 0)) }

// Close implements io.Closer.
func (s *stream) Close() error { return s.file.Close() }

// Read implements io.Reader.
func (s *stream) Read(p []byte) (n int, err error) {
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

// readRest reads without waiting, and only as many bytes as were available at the cut, so that a persistent writer
// cannot hold the stream open.
func (s *stream) readRest(fd int, p []byte) (int, error) {
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
