//go:build linux

package forkserver

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Causes of an Error.
var (
	ErrGone = errors.New("the fork server has gone") // before the request: nothing has been started
	ErrLost = errors.New("the fork server has gone meanwhile")
)

// Client is the side of a fork server that has processes started, for concurrent use.
type Client struct {
	conn    *unixconn.Conn
	process *os.Process
	program *os.File      // that the fork server runs, opened with O_PATH; set when it is ready
	done    chan struct{} // closed when the fork server has gone
	writing sync.Mutex

	mu      sync.Mutex
	last    uint64                 // request; guarded by mu
	pending map[uint64]chan answer // nil once the fork server has gone; guarded by mu
}

// endPatience is how long a fork server may take to end.
const endPatience = time.Second

// Launch starts a fork server, and returns when it is ready, within the context: a program that calls Run, with the
// mode that it finds in its arguments after the name.
func Launch(ctx context.Context, program *Program, args, env []string) (*Client, error) {
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	p, err := startServer(program, args, env, theirs)
	theirs.Close() // so that the connection ends with the server
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ready(ctx, conn, p)
}

// Take returns the fork server that this process has inherited, when it is ready; ok is false where there is none of
// the program.
func Take(ctx context.Context, program *Program) (c *Client, ok bool) {
	a := take(program)
	if a == nil {
		return nil, false
	}
	c, err := ready(ctx, a.conn, a.process)
	return c, err == nil
}

func ready(ctx context.Context, conn *unixconn.Conn, p *os.Process) (c *Client, err error) {
	ready := make(chan answer, 1)
	c = &Client{conn: conn, process: p, done: make(chan struct{}), pending: map[uint64]chan answer{0: ready}}
	go c.read()
	select {
	case a, ok := <-ready:
		if err = ErrGone; ok {
			err = a.err()
		}
		if err == nil {
			var files []*os.File
			if files, err = conn.TakeFDs(1); err == nil {
				c.program = files[0]
				return c, nil
			}
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.Close()
	return nil, err
}

func (c *Client) read() {
	answers := json.NewDecoder(c.conn)
	for {
		var a answer
		if answers.Decode(&a) != nil {
			break
		}
		c.mu.Lock()
		ch := c.pending[a.ID]
		delete(c.pending, a.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	c.conn.Close() // with which it ends, unless it is stopped
	stopped := time.AfterFunc(endPatience, func() { c.process.Kill() })
	c.process.Wait()
	stopped.Stop()
	for _, ch := range pending {
		close(ch)
	}
	close(c.done)
}

// Program opens the program that the fork server runs, with O_PATH, for a process that runs it as well: through a mount
// by which no process can change the file. It outlives the fork server.
func (c *Client) Program() (*os.File, error) {
	fd, err := unix.FcntlInt(c.program.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), c.program.Name()), nil
}

// PID returns the process id of the fork server.
func (c *Client) PID() int { return c.process.Pid }

// Done returns a channel that is closed when the fork server has gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Gone reports whether the fork server has gone.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending == nil
}

// Close ends the fork server. What it has started goes on.
func (c *Client) Close() {
	c.conn.Close()
	<-c.done
}

// Fork has an executor started within the context, in the group of the door, with its four files. It is a child of the
// fork server's. The error is an *Error.
func (c *Client) Fork(ctx context.Context, s Spec, door cgroup.Door, files ...*os.File) (*Process, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return nil, &Error{Op: OpFork, Cause: ErrGone}
	}
	c.last++
	r := request{ID: c.last, Spec: &s, Dir: door.Dir != nil, Tasks: len(door.Tasks), Files: len(files)}
	c.pending[r.ID] = ch
	c.mu.Unlock()
	var fds []int
	if r.Dir {
		fds = append(fds, int(door.Dir.Fd()))
	}
	for _, f := range append(door.Tasks[:len(door.Tasks):len(door.Tasks)], files...) {
		fds = append(fds, int(f.Fd()))
	}
	if c.send(r, fds) != nil {
		return nil, &Error{Op: OpFork, Cause: ErrLost}
	}
	select {
	case a, ok := <-ch:
		return c.started(a, ok)
	case <-ctx.Done():
		go func() {
			a, ok := <-ch
			if p, err := c.started(a, ok); err == nil {
				p.Kill()
				p.Wait()
			}
		}()
		return nil, &Error{Op: OpFork, Cause: ctx.Err()}
	}
}

func (c *Client) started(a answer, ok bool) (*Process, error) {
	switch {
	case !ok:
		return nil, &Error{Op: OpFork, Cause: ErrLost}
	case a.Op != "":
		return nil, a.err()
	}
	fd, err := unix.PidfdOpen(a.PID, 0)
	if err != nil {
		unix.Kill(a.PID, unix.SIGKILL)
		c.send(request{Collect: a.PID}, nil)
		return nil, failed(OpFork, os.NewSyscallError("pidfd_open", err))
	}
	return &Process{pid: a.PID, handle: os.NewFile(uintptr(fd), "process"), server: c}, nil
}

// send writes a request. After a part of one, the connection is of no use.
func (c *Client) send(r request, fds []int) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err = c.conn.WriteFDs(text, fds); err != nil {
		c.conn.Close()
	}
	return err
}

// Process is a process that a fork server has started. It keeps its id until Wait, which is called once, has returned.
// Kill returns os.ErrProcessDone afterwards.
type Process struct {
	pid    int
	handle *os.File // pidfd
	server *Client
}

func (p *Process) PID() int { return p.pid }

func (p *Process) Kill() error {
	conn, err := p.handle.SyscallConn()
	if err != nil {
		return os.ErrProcessDone
	}
	failed := conn.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if failed != nil || errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func (p *Process) Wait() error {
	defer p.handle.Close()
	ended := []unix.PollFd{{Fd: int32(p.handle.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(ended, -1); err != unix.EINTR {
			p.server.send(request{Collect: p.pid}, nil)
			return os.NewSyscallError("poll", err)
		}
	}
}
