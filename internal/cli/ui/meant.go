package ui

import (
	"slices"
	"strings"
)

// Nearest returns the name that a word was probably meant to be: one that begins with it, else the nearest by letters.
// It is empty when none is near: in a word of up to four letters one may differ, in a longer one two.
func Nearest(word string, names []string) string {
	if len(word) > 1 {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, word) }); i >= 0 {
			return names[i]
		}
	}
	most := 2
	if len(word) <= 4 {
		most = 1
	}
	near := ""
	for _, n := range names {
		if d := distance(word, n); d <= most {
			near, most = n, d-1
		}
	}
	return near
}

// distance is how many letters must be added, left out, replaced, or exchanged with the next one.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := [3][]int{make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)} // i-2, i-1, i
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(x); i++ {
		now, last, before := rows[2], rows[1], rows[0]
		now[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		rows = [3][]int{last, now, before}
	}
	return rows[1][len(y)]
}
