//go:build linux

package git

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// operation is a push of a value to a branch, or a fetch of one, as its client saw it. place is where the value is in
// the branch's history: values are in the order in which they were pushed.
type operation struct {
	name  string
	begun time.Duration
	ended time.Duration // unknown for a push of which nothing was heard
	place int
	push  bool
}

// unknown is the end of what may have happened at any time since.
const unknown time.Duration = math.MaxInt64

// linear says which operations cannot all have happened at one moment each, between their beginning and their end: a
// branch is a register then, and what was acknowledged stays.
func linear(all []operation) (wrong []string) {
	ended := slices.Clone(all)
	slices.SortFunc(ended, func(a, b operation) int { return cmp.Compare(a.ended, b.ended) })
	begun := slices.Clone(all)
	slices.SortFunc(begun, func(a, b operation) int { return cmp.Compare(a.begun, b.begun) })
	last, i := operation{place: -1}, 0
	for _, o := range begun {
		for ; i < len(ended) && ended[i].ended < o.begun; i++ {
			if ended[i].place > last.place {
				last = ended[i]
			}
		}
		if o.place < last.place || o.push && o.place == last.place {
			wrong = append(wrong, fmt.Sprintf("%s came after %s, and is before it in the history", o.name, last.name))
		}
	}
	return wrong
}

// TestLinear: what cannot be is found, and nothing else.
func TestLinear(t *testing.T) {
	push := func(name string, place int, begun, ended time.Duration) operation {
		return operation{name: name, place: place, begun: begun, ended: ended, push: true}
	}
	fetch := func(name string, place int, begun, ended time.Duration) operation {
		return operation{name: name, place: place, begun: begun, ended: ended}
	}
	for name, c := range map[string]struct {
		all   []operation
		wrong string
	}{
		"nothing": {},
		"one after the other": {all: []operation{push("a", 1, 1, 2), fetch("ra", 1, 3, 4),
			push("b", 2, 5, 6), fetch("rb", 2, 7, 8)}},
		"at the same time": {all: []operation{push("b", 2, 1, 9), push("a", 1, 2, 8),
			fetch("ra", 1, 3, 4), fetch("r0", 0, 1, 9)}},
		"seen before it is acknowledged": {all: []operation{push("a", 1, 1, 9), fetch("ra", 1, 2, 3),
			push("b", 2, 4, 5)}},
		"never acknowledged": {all: []operation{push("a", 1, 1, unknown), fetch("r0", 0, 5, 6),
			fetch("ra", 1, 7, 8)}},
		"acknowledged in another order": {all: []operation{push("b", 2, 1, 2), push("a", 1, 3, 4)},
			wrong: "a came after b"},
		"an acknowledged push is not seen": {all: []operation{push("a", 1, 1, 2), fetch("r0", 0, 3, 4)},
			wrong: "r0 came after a"},
		"what was seen is not there any more": {all: []operation{push("a", 1, 1, unknown), fetch("ra", 1, 2, 3),
			fetch("r0", 0, 4, 5)}, wrong: "r0 came after ra"},
		"seen before it was pushed": {all: []operation{fetch("ra", 1, 1, 2), push("a", 1, 3, 4)},
			wrong: "a came after ra"},
		"never acknowledged, and in the past": {all: []operation{push("b", 2, 1, 2), push("a", 1, 3, unknown)},
			wrong: "a came after b"},
		"an older one that was heard of before": {all: []operation{push("c", 3, 1, 2), push("a", 1, 1, 4),
			fetch("rb", 2, 5, 6)}, wrong: "rb came after c"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := linear(c.all)
			if len(wrong) > 1 || (c.wrong == "") != (len(wrong) == 0) || !strings.Contains(strings.Join(wrong, "; "), c.wrong) {
				t.Errorf("%q, want %q", wrong, c.wrong)
			}
		})
	}
}
