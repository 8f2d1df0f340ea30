package execution

import (
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/spool"
)

// collector keeps what a program writes, up to the limits, and passes it on. The guest applies the limits too; the host
// does not rely on it.
type collector struct {
	kept *spool.Output
	to   process.Output // may be nil
	turn sync.Mutex     // one call of to at a time

	dropped atomic.Bool

	mu   sync.Mutex
	news chan struct{} // closed when more is kept; nil without a waiting reader
}

func (c *collector) overrun() bool { return c.dropped.Load() }

func (c *collector) writeStdout(p []byte) error {
	if fits := c.keep(c.kept.Stdout(), p); c.to != nil && len(fits) > 0 {
		c.turn.Lock()
		defer c.turn.Unlock()
		return c.to.Stdout(fits)
	}
	return nil
}

func (c *collector) writeStderr(p []byte) error {
	if fits := c.keep(c.kept.Stderr(), p); c.to != nil && len(fits) > 0 {
		c.turn.Lock()
		defer c.turn.Unlock()
		return c.to.Stderr(fits)
	}
	return nil
}

// keep returns what fits of p, and wakes who waits for it.
func (c *collector) keep(s *spool.Stream, p []byte) []byte {
	fits := p[:s.Write(p)]
	if len(fits) < len(p) {
		c.dropped.Store(true)
	}
	if len(fits) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.news != nil {
			close(c.news)
			c.news = nil
		}
	}
	return fits
}

// more returns a channel that closes when more is kept than now.
func (c *collector) more() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		c.news = make(chan struct{})
	}
	return c.news
}
