package terminals

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
)

func TestShareOf(t *testing.T) {
	for cpus, want := range map[float64]float64{0: 0.5, 0.2: 0.1, 1: 0.5, 8: 0.5} {
		if got := shareOf(cpus); got != want {
			t.Errorf("%v processors: %v of the server's, want %v", cpus, got, want)
		}
	}
}

// TestFloodsArePaidBack: terminals that flood take the sandbox's share of the server's time together, however many they
// are, and one that prints little beside them is hardly slowed.
func TestFloodsArePaidBack(t *testing.T) {
	const step, seconds = time.Millisecond, 20
	for _, floods := range []int{1, 8, maxRunning - 1} {
		c := clocktest.NewManual(time.Unix(0, 0))
		p := newPace(c, 0.2)
		waits := make([]time.Duration, floods) // until each reads again
		var taken, slowest time.Duration
		for at := range seconds * time.Second / step {
			for i := range waits {
				if waits[i] -= step; waits[i] <= 0 {
					waits[i] = p.charge(5 * time.Millisecond)
					taken += 5 * time.Millisecond
				}
			}
			if at%20 == 0 {
				slowest = max(slowest, p.charge(10*time.Microsecond))
			}
			c.Advance(step)
		}
		most := burst + time.Duration(float64(seconds*time.Second)*p.share) + maxRunning*5*time.Millisecond
		if taken > most {
			t.Errorf("%d floods: the models took %v in %d s, want at most %v", floods, taken, seconds, most)
		}
		if taken < seconds*time.Second/20 {
			t.Errorf("%d floods: the models took %v in %d s, far less than they may", floods, taken, seconds)
		}
		if slowest > 5*time.Millisecond {
			t.Errorf("beside %d floods one that prints little waits %v", floods, slowest)
		}
	}
}

// TestQuietTerminalsDoNotWait: what a program prints now and then costs no wait.
func TestQuietTerminalsDoNotWait(t *testing.T) {
	c := clocktest.NewManual(time.Unix(0, 0))
	p := newPace(c, 0.2)
	for range 100 {
		if wait := p.charge(5 * time.Millisecond); wait > 0 {
			t.Fatalf("a redraw ten times a second waits %v", wait)
		}
		c.Advance(100 * time.Millisecond)
	}
}
