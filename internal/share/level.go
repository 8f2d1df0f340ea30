package share

import (
	"cmp"
	"maps"
	"slices"
)

// Level returns how much each holder gives up so that n of what they hold are free: those with most come down to one
// level. If they hold less than n, they give up all. It is pure.
func Level[K cmp.Ordered](held map[K]int, n int) map[K]int {
	most := slices.SortedFunc(maps.Keys(held), func(a, b K) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a, b))
	})
	give, sum := map[K]int{}, 0
	for i, who := range most {
		sum += held[who]
		next := 0
		if i+1 < len(most) {
			next = held[most[i+1]]
		}
		if i+1 < len(most) && sum-(i+1)*next < n {
			continue
		}
		level := max(0, sum-n) / (i + 1)
		spare := max(0, sum-n) % (i + 1) // so many keep one more
		for j, who := range most[:i+1] {
			if g := held[who] - level; j < spare {
				give[who] = g - 1
			} else {
				give[who] = g
			}
		}
		break
	}
	maps.DeleteFunc(give, func(_ K, g int) bool { return g <= 0 })
	return give
}
