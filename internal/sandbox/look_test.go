package sandbox

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/hostdisk"
)

// TestUntilNextLook: between two looks, a program that writes as fast as a disk can fills no more than half of the room
// above the floor.
func TestUntilNextLook(t *testing.T) {
	for _, c := range []struct {
		room hostdisk.Room
		want time.Duration
	}{
		{hostdisk.Room{Free: 500 << 30, Total: 1 << 40}, diskPoll},
		{hostdisk.Room{Free: 9 << 30, Total: 1 << 40}, time.Second},
		{hostdisk.Room{Free: 3 << 30, Total: 1 << 40}, time.Second / 4},
		{hostdisk.Room{Free: 1 << 29, Total: 1 << 40}, diskHurry},
		{hostdisk.Room{Free: -1, Total: 1 << 40}, diskHurry},
		{hostdisk.Room{Free: 2040 << 20, Total: 2 << 30}, 236 * time.Millisecond},
	} {
		if got := untilNextLook(c.room); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%+v: %v, want %v", c.room, got, c.want)
		}
	}
}
