package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// splice joins two connections until both directions have ended or been idle, and closes both. Each direction ends by
// itself (half-close), and the kernel moves bytes of TCP. look may refuse before a byte of a goes to b.
func splice(a *conn, b net.Conn, idle time.Duration, look func() error) (sent, received int64, err error) {
	defer b.Close()
	defer a.Close()
	j := &join{idle: idle, start: time.Now()}
	var up, down error
	var both sync.WaitGroup
	both.Go(func() {
		received, down = j.copy(kernelConn(a.Conn), kernelConn(b))
		if down != nil {
			a.Conn.Close()
			b.Close()
		}
	})
	up = look()
	if up == nil {
		sent, up = j.begin(a, kernelConn(b))
	}
	if up == nil {
		var more int64
		more, up = j.copy(kernelConn(b), kernelConn(a.Conn))
		sent += more
	}
	if up != nil {
		reset(a)
		b.Close()
	}
	both.Wait()
	if up == nil || errors.Is(up, net.ErrClosed) && down != nil {
		up = down
	}
	return sent, received, up
}

// kernelConn returns the kernel's connection, which io.Copy can splice.
func kernelConn(c net.Conn) net.Conn {
	if up, ok := c.(*upstreamConn); ok {
		return up.Conn
	}
	return c
}

// join is the shared state of a splice's directions.
type join struct {
	idle  time.Duration
	start time.Time
	last  atomic.Int64 // time of the last byte, nanoseconds since start
}

var errIdle = errors.New("nothing has moved for too long")

func (j *join) begin(a *conn, to net.Conn) (int64, error) {
	ahead := a.ahead
	a.ahead = nil
	if len(ahead) == 0 { // of a server that has spoken and left, even this would be an error
		return 0, nil
	}
	to.SetWriteDeadline(time.Now().Add(j.idle))
	n, err := to.Write(ahead)
	return int64(n), err
}

// copy moves bytes until from ends, and then ends to. A read deadline wakes it to check for activity in either
// direction; no byte is lost then, because io.Copy reads only after it has written. A write deadline ends the copy.
func (j *join) copy(to, from net.Conn) (total int64, err error) {
	pause := j.idle / 4
	for {
		began := time.Now()
		from.SetReadDeadline(began.Add(pause))
		to.SetWriteDeadline(began.Add(pause + j.idle))
		n, err := io.Copy(to, from)
		total += n
		if n > 0 {
			j.last.Store(int64(time.Since(j.start)))
		}
		if err == nil {
			return total, closeWrite(to)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
		idle := time.Since(j.start)-time.Duration(j.last.Load()) >= j.idle
		if idle || time.Since(began) >= pause+j.idle {
			return total, errIdle
		}
	}
}
