package run

import (
	"strings"
	"testing"
)

// TestUnseen: each line of a terminal is shown once, unless it is written over.
func TestUnseen(t *testing.T) {
	for _, c := range []struct{ shown, now, want string }{
		{"", "", ""},
		{"", "a b", "a b"},
		{"a b", "a b", ""},
		{"a b", "a b c d", "c d"},
		{"a b c", "b c d", "d"},       // the oldest is forgotten
		{"a b c", "x y z", "x y z"},   // all of it is
		{"a b c", "a x", "x"},         // written over
		{"a b c", "a", ""},            // cleared
		{"a a a", "a a a a", "a"},     // which one is new does not matter
		{"a b", "a b a b", "a b"},     // said again
		{"10% b", "20% b", "20% b"},   // a line above what stays
		{"a b c d", "", ""},           // cleared whole
		{"p q p q", "p q r", "r"},     // written over, not forgotten
		{"a b c d", "c d e f", "e f"}, // two are forgotten
	} {
		if got := strings.Join(unseen(strings.Fields(c.shown), strings.Fields(c.now)), " "); got != c.want {
			t.Errorf("after %q %q has %q, want %q", c.shown, c.now, got, c.want)
		}
	}
}

// TestFollower: what is there comes first, the line that is being written with it, which the next text completes.
func TestFollower(t *testing.T) {
	type seen struct {
		text string
		runs bool
		want string
	}
	for name, all := range map[string][]seen{
		"a prompt": {{"$ ", true, "$ "}, {"$ ", true, ""}, {"$ ls\na\n$ ", true, "ls\na\n"},
			{"$ ls\na\n$ exit", false, "$ exit\n"}},
		"whole lines":    {{"a\nb\n", true, "a\nb"}, {"a\nb\nc\n", true, "\n"}, {"a\nb\nc\n", false, "c\n"}},
		"nothing":        {{"", true, ""}, {"a\n", true, ""}, {"a\nb\n", true, "a\n"}, {"a\nb\n", false, "b\n"}},
		"it has ended":   {{"a\nb\n", false, "a\nb\n"}},
		"written over":   {{"10%", true, "10%"}, {"20%\nb", true, "\n20%\n"}},
		"ended at once":  {{"$ ", true, "$ "}, {"$ ", false, "\n"}},
		"nothing at all": {{"", false, ""}},
	} {
		var f follower
		for _, s := range all {
			if got := f.next(s.text, s.runs); got != s.want {
				t.Errorf("%s: of %q comes %q, want %q", name, s.text, got, s.want)
			}
		}
	}
}
