package httpapi

import (
	"testing"
	"time"
)

// TestPatience: a client that reads slowly has its time, and one that reads next to nothing loses the connection.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		waited time.Duration
		taken  int64
		want   time.Duration
	}{
		"at first":                    {0, 0, 20 * time.Second},
		"it has used up some":         {25 * time.Second, 0, 5 * time.Second},
		"it has taken much meanwhile": {10 * time.Minute, 64 << 20, 20 * time.Second},
		"it keeps to the least rate":  {35 * time.Second, 10 * leastRate, 5 * time.Second},
		"a byte a second":             {31 * time.Second, 31, -time.Second},
	} {
		if got := patience(20*time.Second, c.waited, c.taken); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
