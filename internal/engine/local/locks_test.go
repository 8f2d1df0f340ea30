//go:build linux

package local

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const lockList = `1: POSIX  ADVISORY  WRITE 1234 00:2d:5678 0 0
2: POSIX  ADVISORY  READ 1234 00:2d:5678 2 EOF
2: -> POSIX  ADVISORY  WRITE 77 00:2d:5678 2 2
3: FLOCK  ADVISORY  WRITE 88 fd:01:9 0 EOF
4: OFDLCK ADVISORY  WRITE -1 fd:01:10 0 EOF
5: POSIX  ADVISORY  READ 99 fd:01:11 0 EOF
`

func TestLockHolders(t *testing.T) {
	for _, c := range []struct {
		most  int
		want  map[int]int
		whole bool
	}{
		{100, map[int]int{1234: 2, 99: 1}, true},
		{6, map[int]int{1234: 2, 99: 1}, true},
		{5, map[int]int{1234: 2}, false},
		{1, map[int]int{1234: 1}, false},
	} {
		held, whole, err := lockHolders(strings.NewReader(lockList), c.most)
		if err != nil || whole != c.whole || !maps.Equal(held, c.want) {
			t.Errorf("the first %d: %v, %v, %v", c.most, held, whole, err)
		}
	}
}

// Locks that are taken while the list is read move the others down it, to a page that is read later.
func TestLockHoldersAreCountedOnce(t *testing.T) {
	const two = "9: POSIX  ADVISORY  WRITE 1234 00:2d:5678 4 4\n9: POSIX  ADVISORY  WRITE 1234 00:2d:5678 6 6\n"
	page := strings.Repeat(two, 3)
	held, whole, err := lockHolders(strings.NewReader(page+"9: POSIX  ADVISORY  WRITE 1234 00:2d:5679 4 4\n"), 100)
	if err != nil || !whole || held[1234] != 3 {
		t.Errorf("%v, %v, %v", held, whole, err)
	}
}

func TestExcessive(t *testing.T) {
	for _, c := range []struct {
		name  string
		held  map[string]int
		whole bool
		want  string
	}{
		{"none", nil, false, ""},
		{"one beyond", map[string]int{"a": MaxLocks + 1, "b": MaxLocks}, true, "a"},
		{"one beyond, in a longer list", map[string]int{"a": MaxLocks + 1, "b": MaxLocks}, false, "a"},
		{"two beyond", map[string]int{"a": MaxLocks + 1, "b": 2 * MaxLocks}, false, "a b"},
		{"none beyond", map[string]int{"a": MaxLocks, "b": MaxLocks - 1}, true, ""},
		{"none beyond, in a longer list", map[string]int{"a": MaxLocks, "b": MaxLocks - 1}, false, "a"},
		{"few each, in a longer list", map[string]int{"a": shareOfLocks, "b": 1}, false, ""},
	} {
		got := excessive(c.held, c.whole)
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); names != c.want {
			t.Errorf("%s: %q, want %q", c.name, names, c.want)
		}
	}
}

func TestGroupIn(t *testing.T) {
	groups := map[string]bool{"r.i.1": true, "c0ffee": true}
	for lines, want := range map[string]string{
		"0::/user.slice/cove/r.i.1\n":                       "r.i.1",
		"0::/cove/r.i.1/inner\n":                            "r.i.1",
		"5:pids:/cove/r.i.1\n4:memory,x:/\n":                "r.i.1",
		"12:memory:/docker/c0ffee\n":                        "c0ffee",
		"0::/system.slice/docker-c0ffee.scope\n":            "c0ffee",
		"12:memory:/libpod_parent/libpod-c0ffee\n":          "c0ffee",
		"0::/machine.slice/libpod-c0ffee.scope/container\n": "c0ffee",
		"0::/cove/r.i.11\n":                                 "",
		"0::/\n":                                            "",
		"":                                                  "",
	} {
		if got := groupIn(lines, groups); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
}
