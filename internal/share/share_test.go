package share

import (
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestRoom: a caller takes half at most of what others leave, and leaves the owner's part; the machine's owner may take
// all of it.
func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name           string
		most, all, own int64
		caller         bool
		want           int64
	}{
		{"the first caller", 1000, 0, 0, true, 437},
		{"it again", 1000, 300, 300, true, 137},
		{"it with its share", 1000, 437, 437, true, 0},
		{"the next one", 1000, 437, 0, true, 219},
		{"the first, when others take more than its share leaves", 1000, 900, 400, true, 0},
		{"a caller beside the owner", 1000, 800, 0, true, 37},
		{"a caller, when only the owner's part is left", 1000, 875, 0, true, 0},
		{"the owner then", 1000, 875, 0, false, 125},
		{"the owner", 1000, 0, 0, false, 1000},
		{"the owner beside a caller", 1000, 437, 0, false, 563},
		{"the owner with the rest", 1000, 1000, 500, false, 0},
		{"nothing is there", 0, 0, 0, true, 0},
		{"more is taken than may be", 1000, 1200, 100, false, 0},
	} {
		if got := Room(c.most, c.all, c.own, c.caller); got != c.want {
			t.Errorf("%s: %d of %d, want %d", c.name, got, c.most, c.want)
		}
	}
}

// TestCrowd: however many callers flood, the owner's part is left, and the first ones leave something for the next.
func TestCrowd(t *testing.T) {
	p := New(1024)
	var crowd sync.WaitGroup
	for uid := range uint32(100) {
		crowd.Go(func() {
			for p.Take(cove.LocalUser(uid), 1) {
			}
		})
	}
	crowd.Wait()
	if left := p.Room(cove.MachineOwner()); left < 1024/ownersPart {
		t.Errorf("%d are left for the owner", left)
	}
	if n := p.TakeUpTo(cove.MachineOwner(), 5000); n+p.Taken()-n > 1024 || p.Take(cove.MachineOwner(), 1) {
		t.Errorf("the owner took %d, and all take %d", n, p.Taken())
	}
	for who, n := range p.each {
		p.Give(who, n)
	}
	if p.Taken() != 0 || len(p.each) != 0 {
		t.Errorf("%d are taken, by %v", p.Taken(), p.each)
	}
}
