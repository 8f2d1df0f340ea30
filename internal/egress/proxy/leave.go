package proxy

import (
	"io"
	"net"
	"time"
)

// under reports whether requests are in progress and no byte of a further one has arrived.
func (c *strictConn) under() bool {
	f := &c.framing
	return !c.off && c.refused == nil && f.state == atRequestLine && len(f.line) == 0 && int64(f.heads) > c.answered.Load()
}

func (c *strictConn) NetConn() net.Conn { return c.Conn }

func (c *strictConn) Read(p []byte) (int, error) {
	switch {
	case c.off:
		return c.Conn.Read(p)
	case c.refused != nil:
		return 0, c.refused
	case c.ended.Load():
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	passed, refused := c.framing.next(p[:n])
	if refused != nil {
		c.refused = refused
		c.ended.Store(true)
		c.onError(refused)
		return passed, refused
	}
	return passed, err
}

// end has the server read no more from the client, and close the connection once it has written its answer.
func (c *strictConn) end() { c.ended.Store(true) }

// CloseWrite implements the half of Close that net/http calls before it closes a connection with unread bytes.
func (c *strictConn) CloseWrite() error {
	if c.ended.Load() && c.outer != nil {
		c.leave()
		return nil
	}
	return closeWrite(c.Conn)
}

// Close implements net.Conn. A client that may still be sending is left slowly.
func (c *strictConn) Close() error {
	if c.ended.Load() && c.outer != nil {
		c.leave()
		return nil
	}
	return c.Conn.Close()
}

// leave ends the answers, and closes the connection when the client has closed it, or after a while. Closing a
// connection with unread bytes resets it: a client that is still sending would see that, and not the answer (RFC 9112,
// 9.6).
func (c *strictConn) leave() {
	c.leaving.Do(func() {
		s := c.outer.server
		if !s.enter() {
			c.Conn.Close()
			return
		}
		go func() {
			defer s.running.Done()
			defer c.Conn.Close()
			closeWrite(c.Conn) // under TLS, its alert
			closeWrite(c.outer)
			c.outer.SetReadDeadline(time.Now().Add(s.timeouts.Leaving))
			io.Copy(io.Discard, c.outer)
		}()
	})
}
