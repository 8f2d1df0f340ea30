package policy

import (
	"strings"
	"testing"
)

// TestTally: deleted files are counted, and not those that are moved, come back, or that a merged side has deleted.
func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		commits string // "COMMIT: PATH BEFORE AFTER, …", and once more for each further parent
		want    int
	}{
		"nothing":                   {"a:", 0},
		"edited":                    {"a: x 1 2", 0},
		"deleted":                   {"a: x 1 -, y 2 -", 2},
		"in two commits":            {"a: x 1 -; b: y 2 -", 2},
		"twice":                     {"a: x 1 -; b: x - 1; c: x 1 -", 0},
		"comes back":                {"a: x 1 -; b: x - 2", 0},
		"added and deleted":         {"a: x - 1; b: x 1 -", 0},
		"moved":                     {"a: d/x 1 -, e/y - 1", 0},
		"moved and edited":          {"a: d/x 1 -, e/x - 2", 0},
		"one of two of that name":   {"a: d/x 1 -, e/x 2 -, f/x - 3", 1},
		"moved, and one deleted":    {"a: d/x 1 -, e/x 2 -, f/x - 1", 1},
		"moved in another commit":   {"a: d/x 1 -; b: e/x - 1", 0},
		"another file is added":     {"a: d/x 1 -, e/y - 2", 1},
		"a merge of a deletion":     {"m: x 1 -; m: y - 2", 0},
		"a merge that deletes":      {"m: x 1 -; m: x 1 -, y - 2", 1},
		"a merge, then a deletion":  {"m: x 1 -; m: y - 2; a: z 3 -", 1},
		"a deletion beside a merge": {"a: z 3 -; m: x 1 -; m: y - 2", 1},
	} {
		tally := NewTally()
		for of := range strings.SplitSeq(c.commits, "; ") {
			commit, changes, _ := strings.Cut(of, ":")
			tally.Begin(commit)
			for change := range strings.SplitSeq(changes, ",") {
				if f := strings.Fields(strings.ReplaceAll(change, "-", `""`)); len(f) == 3 {
					tally.Add(f[0], strings.Trim(f[1], `"`), strings.Trim(f[2], `"`))
				}
			}
		}
		if got := tally.Count(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
