//go:build linux

package parked

import (
	"os"
	"strings"
	"testing"
)

// TestSealedAlike: a process of a zygote is one that was started, as far as the kernel tells.
func TestSealedAlike(t *testing.T) {
	l := newLab(t, bred()...)
	state, err := os.ReadFile("testdata/state.py")
	if err != nil {
		t.Fatal(err)
	}
	p := program{"python", "state", string(state)}
	want := run(t, l.fresh, p)
	if want.Exit != 0 || !strings.Contains(want.Output, "no instructions without a file []") {
		t.Fatalf("fresh: %+v", want)
	}
	for range 3 {
		for _, s := range l.of(p.language) {
			got := s.parked(t, p)
			if found, err := differences(want, want, got); err != nil || len(found) > 0 {
				t.Errorf("%s: %v %s", s.group, err, strings.Join(found, "\n"))
			}
		}
	}
}

// shared is what processes of a zygote have in common, as they would not otherwise; drawn is what each has of its own.
const shared, drawn = `
import ctypes
print(hash("seed"), id(object()), ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value)
`, `
import ctypes, os, random, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print("AT_RANDOM", ctypes.string_at(libc.getauxval(25), 16).hex())
print("random", random.random(), os.urandom(8).hex(), uuid.uuid4())
`

// TestZygotes: all processes but the first come from one zygote, and draw what they draw themselves.
func TestZygotes(t *testing.T) {
	l := newLab(t, bred()...)
	common, apart := map[string]int{}, map[string]bool{}
	for range 6 {
		common[l.copied.parked(t, program{"python", "shared", shared}).Output]++
		got := l.copied.parked(t, program{"python", "drawn", drawn})
		if got.Exit != 0 {
			t.Fatalf("%+v", got)
		}
		for line := range strings.Lines(got.Output) {
			if apart[line] {
				t.Errorf("two processes have the same %s", line)
			}
			apart[line] = true
		}
	}
	most := 0
	for _, n := range common {
		most = max(most, n)
	}
	if most < 5 {
		t.Errorf("not all come from one zygote: %v", common)
	}
	other := map[string]bool{}
	for range 3 {
		other[l.pooled.parked(t, program{"python", "shared", shared}).Output] = true
	}
	if len(other) != 3 {
		t.Errorf("processes that were started have in common: %v", other)
	}
}
