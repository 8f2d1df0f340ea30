package pool

import (
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
)

// demand is how many sandboxes of a kind are worth keeping. It follows from what is asked for: one after the first
// request, one more after each that found none, and one fewer after each pause in which none was missed.
type demand struct {
	least int           // that are kept whatever is asked for
	usual int           // that are kept from the first request on, until none is asked for; 0: one
	want  int           // beside those
	asked clock.Instant // when one was last asked for
	moved clock.Instant // when want last changed
}

// The times of demand.
const (
	settling = time.Minute      // without a miss, until one fewer is kept
	lapse    = 10 * time.Minute // without a request, until none is kept
)

// after returns the demand after a request that found one, or none, where at most most are kept.
func (d demand) after(now clock.Instant, found bool, most int) demand {
	d = d.at(now)
	d.asked = now
	switch {
	case d.want == 0:
		d.want, d.moved = min(max(d.usual, 1), most), now
	case !found && d.want < most:
		d.want, d.moved = d.want+1, now
	case !found:
		d.moved = now
	}
	return d
}

// at returns the demand at a time.
func (d demand) at(now clock.Instant) demand {
	if now.Sub(d.asked) >= lapse {
		d.want = 0
	}
	for d.want > max(d.usual, 1) && now.Sub(d.moved) >= settling {
		d.want, d.moved = d.want-1, d.moved.Add(settling)
	}
	return d
}

// size returns how many are kept.
func (d demand) size() int { return max(d.want, d.least) }
