package proxy

import (
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// pace limits what all connections of a sandbox carry together, in each direction on its own. Nil limits nothing. It
// holds on the sandbox's side, so that everything counts that passes the proxy, whatever its protocol.
type pace struct{ sent, received *rate.Limiter }

// pacedAtOnce is how many bytes a connection takes at a time, so that the others have their turns between.
const pacedAtOnce = 16 << 10

// newPace limits to bytes per second; 0 limits nothing.
func newPace(bytes int64) *pace {
	if bytes <= 0 {
		return nil
	}
	one := func() *rate.Limiter { return rate.NewLimiter(rate.Limit(bytes), max(pacedAtOnce, int(bytes/10))) }
	return &pace{sent: one(), received: one()}
}

// of returns a connection from the sandbox, or one that keeps to the pace.
func (p *pace) of(c net.Conn) net.Conn {
	if p == nil {
		return c
	}
	return &pacedConn{Conn: c, pace: p, closed: make(chan struct{})}
}

type pacedConn struct {
	net.Conn
	pace   *pace
	once   sync.Once
	closed chan struct{}
}

// unpaced returns the connection below a pace.
func unpaced(c net.Conn) net.Conn {
	if p, ok := c.(*pacedConn); ok {
		return p.Conn
	}
	return c
}

// wait waits until bytes may pass, or until the connection is closed.
func (c *pacedConn) wait(l *rate.Limiter, bytes int) error {
	delay := l.ReserveN(time.Now(), bytes).Delay()
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C: // either: the next call sees that it is closed
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Read implements net.Conn. The sandbox fills its own buffers meanwhile, and then waits.
func (c *pacedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), pacedAtOnce)])
	if n > 0 {
		c.wait(c.pace.sent, n) // a closed connection shows at the next Read
	}
	return n, err
}

// Write implements net.Conn.
func (c *pacedConn) Write(p []byte) (written int, err error) {
	for {
		chunk := p[written:min(len(p), written+pacedAtOnce)]
		if err := c.wait(c.pace.received, len(chunk)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(chunk)
		if written += n; err != nil || written == len(p) {
			return written, err
		}
	}
}

func (c *pacedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *pacedConn) CloseWrite() error { return closeWrite(c.Conn) }
