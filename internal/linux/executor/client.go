//go:build linux

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// ErrGone is the error of a script whose executor has ended.
var ErrGone = errors.New("the executor has gone")

// Error is the failed call of a script.
type Error struct {
	Doing string
	Errno unix.Errno
}

func (e *Error) Error() string { return e.Doing + ": " + e.Errno.Error() }

func (e *Error) Unwrap() error { return e.Errno }

// Client writes scripts for one executor, for concurrent use.
type Client struct {
	conn  *unixconn.Conn
	ended func(pid int, status unix.WaitStatus)
	done  chan struct{}

	writing sync.Mutex // orders scripts, and what is pending
	mu      sync.Mutex
	pending []request // in the order of the scripts
	gone    bool
}

type request struct {
	script *Script
	answer chan outcome
}

type outcome struct {
	data  []byte
	files []*os.File
	err   error
}

// NewClient serves a connection. The function ended is told of each child of a script that has ended, in order.
func NewClient(conn *unixconn.Conn, ended func(pid int, status unix.WaitStatus)) *Client {
	c := &Client{conn: conn, ended: ended, done: make(chan struct{})}
	go c.read()
	return c
}

// Close ends the executor, with all of its sandbox if it is PID 1.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

// Done returns a channel that is closed when the executor has gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Run has a script executed, with descriptors, and returns its answer and the files that it gave. A script whose
// context ends first is executed nevertheless. The error is an *Error, ErrGone, or that of the context.
func (c *Client) Run(ctx context.Context, s *Script, fds ...int) ([]byte, []*os.File, error) {
	text, err := s.encode(len(fds))
	if err != nil {
		return nil, nil, err
	}
	answer := make(chan outcome, 1)
	c.writing.Lock()
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.pending = append(c.pending, request{s, answer})
	}
	c.mu.Unlock()
	if !gone {
		if c.write(text, fds) != nil {
			c.conn.Close() // a part of a script is of no use
		}
	}
	c.writing.Unlock()
	if gone {
		return nil, nil, ErrGone
	}
	select {
	case o := <-answer:
		return o.data, o.files, o.err
	case <-ctx.Done():
		go func() {
			for _, f := range (<-answer).files {
				f.Close()
			}
		}()
		return nil, nil, ctx.Err()
	}
}

func (c *Client) write(text []byte, fds []int) error {
	if len(fds) > 0 {
		return c.conn.WriteFDs(text, fds)
	}
	_, err := c.conn.Write(text)
	return err
}

func (c *Client) read() {
	for c.next() == nil {
	}
	c.conn.Close()
	c.mu.Lock()
	pending := c.pending
	c.pending, c.gone = nil, true
	c.mu.Unlock()
	for _, r := range pending {
		r.answer <- outcome{err: ErrGone}
	}
	close(c.done)
}

// next reads a message.
func (c *Client) next() error {
	var m message
	if _, err := io.ReadFull(c.conn, memoryOf(&m)); err != nil {
		return err
	}
	if m.kind == messageExit {
		c.ended(int(m.pid), unix.WaitStatus(m.status))
		return nil
	}
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return errors.New("an answer to no script")
	}
	r := c.pending[0]
	c.pending = c.pending[1:]
	c.mu.Unlock()
	o, err := c.outcome(r.script, m)
	r.answer <- o
	return err
}

func (c *Client) outcome(s *Script, m message) (outcome, error) {
	if m.status != 0 {
		doing := ""
		if int(m.pid) < len(s.what) {
			doing = s.what[m.pid]
		}
		return outcome{err: &Error{doing, unix.Errno(m.status)}}, nil
	}
	if int(m.size) != s.answer {
		err := fmt.Errorf("an answer of %d bytes instead of %d", m.size, s.answer)
		return outcome{err: cmp.Or(err, ErrGone)}, err
	}
	o := outcome{data: make([]byte, m.size)}
	if _, err := io.ReadFull(c.conn, o.data); err != nil {
		return outcome{err: ErrGone}, err
	}
	var err error
	if o.files, err = c.conn.TakeFDs(s.gives()); err != nil {
		return outcome{err: ErrGone}, err
	}
	return o, nil
}

// gives counts the files that a script gives.
func (s *Script) gives() (n int) {
	for _, o := range s.ops {
		if o.nr == opGive {
			n++
		}
	}
	return n
}
