//go:build linux

package executor

import (
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

// Violation says what no executor says.
type Violation struct{ Reason string }

func (v *Violation) Error() string { return "executor: " + v.Reason }

func violation(format string, args ...any) error { return &Violation{fmt.Sprintf(format, args...)} }

// Bounds of what waits for an executor's answers. An executor that answers does not come near them.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 64 << 20 // of scripts
)

// maxStatus bounds an error: those of a caller are numbers of 16 bits.
const maxStatus = 1<<16 - 1

// Client writes scripts for one executor, for concurrent use. It treats everything it reads as hostile.
type Client struct {
	conn  *unixconn.Conn
	ended func(pid int, status unix.WaitStatus) error
	done  chan struct{}

	writing sync.Mutex // orders scripts, and what is pending
	mu      sync.Mutex
	pending []request // in the order of the scripts
	gone    bool
	failure error // the violation for which it has gone
	waiting int   // scripts without an answer, also those that are not written yet
	bytes   int   // of these
}

type request struct {
	script *Script
	size   int // of its text
	answer chan outcome
}

type outcome struct {
	data  []byte
	files []*os.File
	err   error
}

// NewClient serves a connection. The function ended is told of each child of a script that has ended, in order; its
// error is a violation, and ends the connection.
func NewClient(conn *unixconn.Conn, ended func(pid int, status unix.WaitStatus) error) *Client {
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

// Break is Close for a violation that the caller has found.
func (c *Client) Break(v *Violation) {
	c.fail(v)
	c.Close()
}

// fail keeps the first error that is not just the end of the connection.
func (c *Client) fail(err error) {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, os.ErrClosed} {
		if errors.Is(err, end) {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil && !c.gone {
		c.failure = err
	}
}

// Done returns a channel that is closed when the executor has gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why an executor has gone, if it has not just ended.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Run has a script executed, with descriptors, and returns its answer and the files that it gave. A script whose
// context ends first is executed nevertheless. The error is an *Error, ErrGone, or that of the context.
func (c *Client) Run(ctx context.Context, s *Script, fds ...int) ([]byte, []*os.File, error) {
	text, err := s.encode(len(fds))
	if err != nil {
		return nil, nil, err
	}
	if !c.wait(1, len(text)) {
		c.Break(&Violation{"it does not answer"})
		return nil, nil, ErrGone
	}
	r := request{s, len(text), make(chan outcome, 1)}
	if !c.send(r, text, fds) {
		return nil, nil, ErrGone
	}
	select {
	case o := <-r.answer:
		return o.data, o.files, o.err
	case <-ctx.Done():
		go func() {
			for _, f := range (<-r.answer).files {
				f.Close()
			}
		}()
		return nil, nil, ctx.Err()
	}
}

// wait counts scripts that wait for an answer, and reports whether they are within the bounds.
func (c *Client) wait(scripts, bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += scripts
	c.bytes += bytes
	return c.waiting <= maxWaiting && c.bytes <= maxWaitingBytes
}

// send writes a script, and reports whether it will have an outcome.
func (c *Client) send(r request, text []byte, fds []int) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	gone := c.gone
	if !gone {
		c.pending = append(c.pending, r)
	}
	c.mu.Unlock()
	if !gone && c.write(text, fds) != nil {
		c.conn.Close() // a part of a script is of no use
	}
	return !gone
}

func (c *Client) write(text []byte, fds []int) error {
	if len(fds) > 0 {
		return c.conn.WriteFDs(text, fds)
	}
	_, err := c.conn.Write(text)
	return err
}

func (c *Client) read() {
	var err error
	for err == nil {
		err = c.next()
	}
	c.fail(err)
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
	switch m.kind {
	case messageExit:
		if m.size != 0 || c.conn.Untaken() > 0 {
			return violation("the end of a process with more than that")
		}
		return c.ended(int(m.pid), unix.WaitStatus(m.status))
	case messageAnswer:
		return c.answer(m)
	}
	return violation("a message of the kind %d", m.kind)
}

func (c *Client) answer(m message) error {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return violation("an answer to no script")
	}
	r := c.pending[0]
	c.pending = c.pending[1:]
	c.mu.Unlock()
	o, err := c.outcome(r.script, m)
	if err != nil {
		c.fail(err)
		r.answer <- outcome{err: ErrGone}
		return err
	}
	c.wait(-1, -r.size)
	r.answer <- o
	return nil
}

// outcome reads the rest of an answer. The error is one of the connection.
func (c *Client) outcome(s *Script, m message) (outcome, error) {
	if m.status != 0 {
		if m.status > maxStatus || m.size != 0 || int64(m.pid) >= int64(len(s.what)) || c.conn.Untaken() > 0 {
			return outcome{}, violation("the error %d of the call %d with %d bytes", m.status, m.pid, m.size)
		}
		return outcome{err: &Error{s.what[m.pid], unix.Errno(m.status)}}, nil
	}
	if int64(m.size) != int64(s.answer) {
		return outcome{}, violation("an answer of %d bytes instead of %d", m.size, s.answer)
	}
	o := outcome{data: make([]byte, m.size)}
	if _, err := io.ReadFull(c.conn, o.data); err != nil {
		return outcome{}, err
	}
	if came, want := c.conn.Untaken(), s.gives(); came != want {
		return outcome{}, violation("%d descriptors instead of %d", came, want)
	}
	var err error
	o.files, err = c.conn.TakeFDs(s.gives())
	return o, err
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
