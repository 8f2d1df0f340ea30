package execution

import (
	"sync"
	"sync/atomic"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/spool"
)

// collector keeps what a program writes, up to the limits, and passes it on up to them, also where there was no room to
// keep it. The guest applies the limits too; the host does not rely on it.
type collector struct {
	kept *spool.Output
	to   process.Output // may be nil
	turn sync.Mutex     // one call of to at a time

	stdout, stderr int64 // bytes that may be passed on yet; each is its stream's alone

	dropped atomic.Bool

	mu   sync.Mutex
	news chan struct{} // closed when more is kept; nil without a waiting reader
}

// newCollector makes a collector of streams of a principal's with a limit each, in bytes.
func newCollector(in *spool.Spool, who cove.Principal, to process.Output, stdout, stderr int64) *collector {
	return &collector{to: to, kept: in.New(who, stdout, stderr), stdout: stdout, stderr: stderr}
}

func (c *collector) overrun() bool { return c.dropped.Load() }

func (c *collector) writeStdout(p []byte) error {
	c.keep(c.kept.Stdout(), p)
	return c.pass(process.Output.Stdout, p, &c.stdout)
}

func (c *collector) writeStderr(p []byte) error {
	c.keep(c.kept.Stderr(), p)
	return c.pass(process.Output.Stderr, p, &c.stderr)
}

// pass passes on what the limit leaves of p.
func (c *collector) pass(write func(process.Output, []byte) error, p []byte, left *int64) error {
	p = p[:min(int64(len(p)), *left)]
	*left -= int64(len(p))
	if c.to == nil || len(p) == 0 {
		return nil
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	return write(c.to, p)
}

// keep keeps what there is room for, and wakes who waits for it.
func (c *collector) keep(s *spool.Stream, p []byte) {
	kept := s.Write(p)
	if kept < len(p) {
		c.dropped.Store(true)
	}
	if kept > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.news != nil {
			close(c.news)
			c.news = nil
		}
	}
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
