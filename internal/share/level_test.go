package share

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		name string
		held map[string]int
		n    int
		want map[string]int
	}{
		{"none", map[string]int{}, 5, map[string]int{}},
		{"nothing to free", map[string]int{"a": 3}, 0, map[string]int{}},
		{"one", map[string]int{"a": 10}, 4, map[string]int{"a": 4}},
		{"the one with most", map[string]int{"a": 10, "b": 3}, 4, map[string]int{"a": 4}},
		{"both, from a level on", map[string]int{"a": 10, "b": 8}, 4, map[string]int{"a": 3, "b": 1}},
		{"the one with few keeps them", map[string]int{"a": 10, "b": 8, "c": 1}, 14, map[string]int{"a": 8, "b": 6}},
		{"an odd one", map[string]int{"a": 5, "b": 5}, 3, map[string]int{"a": 1, "b": 2}},
		{"all", map[string]int{"a": 5, "b": 2}, 7, map[string]int{"a": 5, "b": 2}},
		{"more than there is", map[string]int{"a": 5, "b": 2}, 9, map[string]int{"a": 5, "b": 2}},
	} {
		if got := Level(c.held, c.n); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLevelFrees: exactly n are freed, and those who give up nothing have no more than those who do have left.
func TestLevelFrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.MapOf(rapid.IntRange(0, 9), rapid.IntRange(0, 50)).Draw(t, "held")
		sum := 0
		for _, n := range held {
			sum += n
		}
		n := rapid.IntRange(0, sum).Draw(t, "n")
		give, freed := Level(held, n), 0
		for _, g := range give {
			freed += g
		}
		if freed != n {
			t.Fatalf("%d are freed of %v by %v, not %d", freed, held, give, n)
		}
		for a, g := range give {
			for b, other := range held {
				if g > held[a] || give[b] == 0 && held[a]-g+1 < other {
					t.Fatalf("%d gives up %d of %v, and %d nothing", a, g, held, b)
				}
			}
		}
	})
}
