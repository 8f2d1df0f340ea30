package pool

import (
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/cove-sandbox/cove/internal/clock"
)

// TestZygotes: a zygote serves for a while and a number of programs, one that makes none is dropped, and after some
// failures no other is made.
func TestZygotes(t *testing.T) {
	var z zygotes
	begin := clock.Instant(0).Add(zygoteAge)
	null := func() *os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	has := func(at clock.Instant, want bool) {
		t.Helper()
		c := z.copy(at, Parked{Path: "/work/main.py"})
		if (c != nil) != want || z.lacking() == want && z.failed < zygoteTries {
			t.Errorf("at %v: %+v, want %v", at, c, want)
		}
	}
	has(begin, false)
	z.set(null(), begin, nil)
	has(begin, true)
	has(begin.Add(zygoteAge-1), true)
	has(begin.Add(zygoteAge), false)
	z.set(null(), begin, nil)
	for range zygoteUses {
		has(begin, true)
	}
	has(begin, false)

	why, log := errors.New("no"), slog.New(slog.DiscardHandler)
	z.set(null(), begin, nil)
	old := z.copy(begin, Parked{})
	z.set(null(), begin, nil)
	z.broken(old, log, why) // it was replaced meanwhile
	has(begin, true)
	for range zygoteTries - 1 {
		z.set(nil, begin, why)
	}
	if z.set(null(), begin, nil); z.failed != 0 {
		t.Error("failures before a zygote count after it")
	}
	for range zygoteTries - 1 {
		z.set(nil, begin, why)
	}
	z.broken(z.copy(begin, Parked{}), log, why)
	if has(begin, false); z.lacking() {
		t.Error("another zygote is made")
	}
}

// TestSparse: those that have their memory already are claimed before others that are older.
func TestSparse(t *testing.T) {
	for _, tt := range []struct {
		sparse       []bool
		whole, first int
	}{
		{[]bool{false, false}, 2, 0},
		{[]bool{true, true}, 0, 0},
		{[]bool{true, true, false, true, false}, 2, 2},
	} {
		var k kind
		for _, sparse := range tt.sparse {
			k.ready = append(k.ready, &Prepared{sparse: sparse})
		}
		if whole, first := k.whole(), k.first(); whole != tt.whole || first != tt.first {
			t.Errorf("%v: %d are whole, the first is %d, want %d, %d", tt.sparse, whole, first, tt.whole, tt.first)
		}
	}
}
