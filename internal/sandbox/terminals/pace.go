package terminals

import (
	"cmp"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
)

// pace bounds the processor time that the models of a sandbox's terminals take of the server, all terminals together.
// Debt is paid back by not reading, so that a program that floods its terminals stalls.
type pace struct {
	clock clock.Clock
	share float64 // of one processor

	mu   sync.Mutex
	free clock.Instant // when all debt is paid
}

const (
	// burst is the time of a model that is not in debt: many redraws of a large screen.
	burst = 100 * time.Millisecond
	// longestRest bounds the wait before the next read, and so how late the end of a program is seen.
	longestRest = 2 * time.Second
)

func newPace(c clock.Clock, cpus float64) *pace {
	p := &pace{clock: c, share: shareOf(cpus)}
	p.free = p.unused(c.Monotonic())
	return p
}

// unused is when all debt is paid of a sandbox whose terminals have been quiet.
func (p *pace) unused(now clock.Instant) clock.Instant {
	return now.Add(-time.Duration(float64(burst) / p.share))
}

// shareOf returns the share for a sandbox of so many processors, where 0 is no limit: half as much, and at most half of
// one processor.
func shareOf(cpus float64) float64 { return min(cmp.Or(cpus, 1), 1) / 2 }

// charge adds the time that a model has taken, and returns how long its terminal has to wait. A terminal waits for debt
// of others, too, but no longer than if each of maxRunning did as it does: one that prints little is hardly slowed.
func (p *pace) charge(took time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Monotonic()
	cost := time.Duration(float64(took) / p.share)
	p.free = max(p.free, p.unused(now)).Add(cost)
	return min(max(p.free.Sub(now), 0), maxRunning*cost, longestRest)
}
