package pool

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
)

func TestDemand(t *testing.T) {
	const most = 3
	type step struct {
		at   time.Duration
		what string // "hit", "miss", or empty to look only
		want int
	}
	for name, steps := range map[string][]step{
		"nothing is asked for":         {{0, "", 0}, {time.Hour, "", 0}},
		"the first keeps one":          {{time.Hour, "miss", 1}, {time.Hour + 5*time.Minute, "", 1}},
		"a hit no more":                {{0, "miss", 1}, {1, "hit", 1}},
		"a miss adds one":              {{0, "miss", 1}, {1, "miss", 2}},
		"never more than the most":     {{0, "miss", 1}, {1, "miss", 2}, {2, "miss", 3}, {3, "miss", 3}},
		"a hit does not end the pause": {{0, "miss", 1}, {1, "miss", 2}, {settling, "hit", 2}, {settling + 1, "", 1}},
		"a miss does":                  {{0, "miss", 1}, {1, "miss", 2}, {settling, "miss", 3}, {settling + 1, "", 3}},
		"forgotten in the end":         {{0, "miss", 1}, {lapse - 1, "", 1}, {lapse, "", 0}, {lapse + 1, "hit", 1}},
		"one fewer each pause": {{0, "miss", 1}, {1, "miss", 2}, {2, "miss", 3}, {settling + 1, "", 3}, {settling + 2, "", 2},
			{2*settling + 2, "", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var d demand
			d.asked = -clock.Instant(lapse)
			for _, s := range steps {
				now := clock.Instant(s.at)
				if s.what != "" {
					d = d.after(now, s.what == "hit", most)
				}
				if got := d.at(now).size(); got != s.want {
					t.Errorf("after %s at %s: %d, want %d", s.what, s.at, got, s.want)
				}
			}
		})
	}
	d := demand{usual: 3, asked: -clock.Instant(lapse)}
	for at, want := range map[time.Duration]int{0: 3, lapse - 1: 3, lapse: 0} {
		if got := d.after(0, false, 5).at(clock.Instant(at)).size(); got != want {
			t.Errorf("usually 3, at %s: %d, want %d", at, got, want)
		}
	}
	if n := d.after(0, false, 2).size(); n != 2 {
		t.Errorf("usually 3, at most 2: %d", n)
	}
	if d := (demand{least: 2, want: 1}); d.size() != 2 {
		t.Errorf("least: %d", d.size())
	}
}
