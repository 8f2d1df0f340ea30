package proxy

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// patientConn hides a client's half-close from net/http while requests are in progress, because net/http would abandon
// them. It does so for a limited time, since a client that has left looks the same until a write fails.
type patientConn struct {
	net.Conn
	leaving time.Duration
	under   func() bool // requests are in progress

	mu       sync.Mutex
	deadline time.Time     // guarded by mu
	changed  chan struct{} // guarded by mu; closed when deadline changes
}

func (c *patientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF && n == 0 && c.under() {
		return 0, c.wait()
	}
	return n, err
}

// wait returns when the client's time is over, or a read should end.
func (c *patientConn) wait() error {
	limit := time.NewTimer(c.leaving)
	defer limit.Stop()
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		deadline, changed := c.deadline, c.changed
		c.mu.Unlock()
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
		var due <-chan time.Time
		if !deadline.IsZero() {
			due = time.After(time.Until(deadline))
		}
		select {
		case <-limit.C: // either: a change moves no limit
			return io.EOF
		case <-due:
		case <-changed:
		}
	}
}

func (c *patientConn) SetReadDeadline(t time.Time) error {
	c.note(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *patientConn) SetDeadline(t time.Time) error {
	c.note(t)
	return c.Conn.SetDeadline(t)
}

// Close wakes a pending wait.
func (c *patientConn) Close() error {
	c.note(time.Unix(1, 0))
	return c.Conn.Close()
}

func (c *patientConn) note(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *patientConn) NetConn() net.Conn { return c.Conn }
func (c *patientConn) CloseWrite() error { return closeWrite(c.Conn) }
