package sandbox

import (
	"io"
	"sync"
	"sync/atomic"
)

// collector keeps what a program writes, up to the limits, and passes it on.
// The guest applies the limits too; the host does not rely on it.
type collector struct {
	to Output // may be nil

	mu             sync.Mutex // one call of to at a time
	stdout, stderr kept
	dropped        atomic.Bool
}

// kept is a bounded buffer, guarded by collector.mu.
type kept struct {
	limit int64
	buf   []byte
}

// take keeps what fits of p and returns it.
func (k *kept) take(p []byte) []byte {
	p = p[:min(int64(len(p)), k.limit-int64(len(k.buf)))]
	k.buf = append(k.buf, p...)
	return p
}

func (k *kept) bytes() []byte { return k.buf }

func (c *collector) overrun() bool { return c.dropped.Load() }

func (c *collector) writeStdout(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fits := c.stdout.take(p)
	c.note(len(fits) < len(p))
	if c.to == nil || len(fits) == 0 {
		return nil
	}
	return c.to.Stdout(fits)
}

func (c *collector) writeStderr(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fits := c.stderr.take(p)
	c.note(len(fits) < len(p))
	if c.to == nil || len(fits) == 0 {
		return nil
	}
	return c.to.Stderr(fits)
}

func (c *collector) note(dropped bool) {
	if dropped {
		c.dropped.Store(true)
	}
}

// copy reads r to its end. When write fails the receiver has gone: gone is
// called once, and the rest is read and dropped.
func (c *collector) copy(r io.Reader, write func([]byte) error, gone func()) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && write != nil {
			if write(buf[:n]) != nil {
				gone()
				write = nil
			}
		}
		if err != nil {
			return
		}
	}
}
