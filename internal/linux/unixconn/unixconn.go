//go:build linux

// Package unixconn is a connected unix stream socket that carries file descriptors with its bytes. It avoids package
// net, which would treble the size of a small static binary.
package unixconn

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// maxFDs bounds the descriptors of one message (SCM_MAX_FD is 253).
const maxFDs = 64

// maxPending bounds descriptors received but not yet taken.
const maxPending = 256

// Conn is one end. Reads and writes may be concurrent with each other.
type Conn struct {
	file *os.File

	mu  sync.Mutex
	fds []*os.File // received, not yet taken
}

// Pair returns two connected ends, close-on-exec: one wrapped, one as a file for a child.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, err := New(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return ours, os.NewFile(uintptr(fds[1]), "guest socket"), nil
}

// New takes ownership of fd, a connected unix stream socket, and sets close-on-exec.
func New(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Conn{file: os.NewFile(uintptr(fd), "guest socket")}, nil
}

// Listen makes a listening socket at a path that only its owner may connect to.
func Listen(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = shortened(path, func(short string) error {
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: short}); err != nil {
			return err
		}
		if err := unix.Chmod(path, 0o600); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	})
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Accept waits for the next connection.
func Accept(listener *os.File) (*Conn, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var opErr error
	err = raw.Read(func(l uintptr) bool {
		for {
			fd, _, opErr = unix.Accept4(int(l), unix.SOCK_CLOEXEC)
			if opErr != unix.EINTR && opErr != unix.ECONNABORTED {
				return opErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = opErr
	}
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	return New(fd)
}

// Dial connects to a listening socket.
func Dial(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = shortened(path, func(short string) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: short}) })
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return New(fd)
}

// shortened calls f with a name for path that fits into a socket address, at most 107 bytes.
func shortened(path string, f func(short string) error) error {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f("/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path))
}

// Read implements io.Reader; descriptors that arrive with the bytes wait for TakeFDs.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, flags int
	var opErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, opErr = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
			if opErr != unix.EINTR {
				return opErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = opErr
	}
	if err != nil {
		if errors.Is(err, unix.ECONNRESET) {
			err = io.EOF
		}
		return 0, err
	}
	if oobn > 0 {
		if err := c.keep(oob[:oobn]); err != nil {
			return n, err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return n, errors.New("too many descriptors in one message")
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *Conn) keep(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			c.fds = append(c.fds, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(c.fds) > maxPending {
		return errors.New("too many descriptors received and not taken")
	}
	return nil
}

// TakeFDs removes the first n received descriptors. Descriptors are received once the bytes they were sent with have
// been read.
func (c *Conn) TakeFDs(n int) ([]*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n > len(c.fds) {
		return nil, errors.New("the announced descriptors did not arrive")
	}
	taken := append([]*os.File(nil), c.fds[:n]...)
	c.fds = c.fds[n:]
	return taken, nil
}

// Write implements io.Writer by sendmsg, which the kernel does not count as the process's written bytes.
func (c *Conn) Write(p []byte) (int, error) {
	total := 0
	for total < len(p) {
		n, err := c.send(p[total:], nil)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// WriteFDs writes all of p with fds attached to its first byte.
func (c *Conn) WriteFDs(p []byte, fds []int) error {
	if len(fds) > maxFDs {
		return errors.New("too many descriptors for one message")
	}
	n, err := c.send(p, unix.UnixRights(fds...))
	if err != nil {
		return err
	}
	_, err = c.Write(p[n:])
	return err
}

func (c *Conn) send(p, oob []byte) (int, error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var opErr error
	err = raw.Write(func(fd uintptr) bool {
		for {
			n, opErr = unix.SendmsgN(int(fd), p, oob, nil, unix.MSG_NOSIGNAL)
			if opErr != unix.EINTR {
				return opErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = opErr
	}
	return n, err
}

// Close closes the socket and all descriptors not yet taken.
func (c *Conn) Close() error {
	c.mu.Lock()
	for _, f := range c.fds {
		f.Close()
	}
	c.fds = nil
	c.mu.Unlock()
	return c.file.Close()
}
