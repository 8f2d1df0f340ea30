//go:build linux

// Package unixconn is a connected unix stream socket that carries file descriptors with its bytes. It avoids package
// net, which would treble the size of a small static binary.
package unixconn

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFDs bounds the descriptors of one message (SCM_MAX_FD is 253).
const maxFDs = 64

// maxPending bounds descriptors received but not yet taken.
const maxPending = 256

// Conn is one end. Reads and writes may be concurrent with each other.
type Conn struct {
	file *os.File

	mu     sync.Mutex
	fds    []*os.File // received, not yet taken
	closed bool
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
	fd, err := socket("listen", path, unix.SOCK_NONBLOCK, func(fd int, short string) error {
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: short}); err != nil {
			return err
		}
		if err := unix.Chmod(path, 0o600); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Accept waits for the next connection.
func Accept(listener *os.File) (*Conn, error) {
	var fd int
	err := wait(listener, syscall.RawConn.Read, func(l int) (err error) {
		fd, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	return New(fd)
}

// wait makes a system call on a socket until it is neither interrupted nor would block; how waits, to read or to write.
func wait(f *os.File, how func(syscall.RawConn, func(uintptr) bool) error, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var called error
	err = how(raw, func(fd uintptr) bool {
		for {
			if called = call(int(fd)); called != unix.EINTR {
				return called != unix.EAGAIN
			}
		}
	})
	return cmp.Or(err, called)
}

// dialPatience is how long connections that nothing accepts may keep another one waiting, in seconds.
const dialPatience = 10

// Dial connects to a listening socket. The error is EAGAIN where connections wait that nothing accepts.
func Dial(path string) (*Conn, error) {
	fd, err := socket("connect", path, 0, func(fd int, short string) error {
		patience := unix.Timeval{Sec: dialPatience}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrUnix{Name: short})
	})
	if err != nil {
		return nil, err
	}
	return New(fd)
}

// socket makes a socket and calls f with it and a name for path that fits into a socket address (107 bytes).
func socket(op, path string, flags int, f func(fd int, short string) error) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = f(fd, "/proc/self/fd/"+strconv.Itoa(dir)+"/"+filepath.Base(path))
		unix.Close(dir)
	}
	if err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: op, Path: path, Err: err}
	}
	return fd, nil
}

// Read implements io.Reader; descriptors that arrive with the bytes wait for TakeFDs.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, flags int
	err := wait(c.file, syscall.RawConn.Read, func(fd int) (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(fd, p, oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
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
	if c.closed {
		c.drop()
	}
	if len(c.fds) > maxPending {
		return errors.New("too many descriptors received and not taken")
	}
	return nil
}

// TakeFDs removes the first n received descriptors; they arrive when the bytes that they were sent with are read.
func (c *Conn) TakeFDs(n int) ([]*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n > len(c.fds) {
		return nil, errors.New("the announced descriptors did not arrive")
	}
	taken := slices.Clone(c.fds[:n])
	c.fds = c.fds[n:]
	return taken, nil
}

// Untaken counts the descriptors that have been received and not taken.
func (c *Conn) Untaken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fds)
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

func (c *Conn) send(p, oob []byte) (n int, err error) {
	err = wait(c.file, syscall.RawConn.Write, func(fd int) (err error) {
		n, err = unix.SendmsgN(fd, p, oob, nil, unix.MSG_NOSIGNAL)
		return err
	})
	return n, err
}

// Close closes the socket and all descriptors not yet taken.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.drop()
	c.mu.Unlock()
	return c.file.Close()
}

func (c *Conn) drop() {
	for _, f := range c.fds {
		f.Close()
	}
	c.fds = nil
}
