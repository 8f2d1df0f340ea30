package ui

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const someID = "ex_0123456789abcdefghjkmnpqrs"

// TestFitted: a table is as wide as it is without a terminal, and fits one by shorter ids and cut cells.
func TestFitted(t *testing.T) {
	rows := [][]string{{"NAME", "ID", "TASK"}, {"brave-otter", someID, "make the failing test pass\x1b[2J"}}
	for columns, want := range map[int]string{
		0: "NAME         ID                             TASK\n" +
			"brave-otter  ex_0123456789abcdefghjkmnpqrs  make the failing test pass\\x1b[2J\n",
		70: "NAME         ID           TASK\n" +
			"brave-otter  ex_01234567  make the failing test pass\\x1b[2J\n",
		40: "NAME         ID           TASK\n" +
			"brave-otter  ex_01234567  make the fail…\n",
		10: "NAME         ID      TASK\n" +
			"brave-otter  ex_01…  make …\n",
	} {
		if got := fitted(rows, columns); got != want {
			t.Errorf("in %d columns\n%swant\n%s", columns, got, want)
		}
	}
}

func FuzzFitted(f *testing.F) {
	f.Add("NAME", "a long cell of many words", 20)
	f.Fuzz(func(t *testing.T, name, cell string, columns int) {
		columns = 30 + int(uint(columns)%200)
		name = cut(Printable(name), 10)
		for line := range strings.Lines(fitted([][]string{{"N", "C", "D"}, {name, cell, someID}}, columns)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Fatalf("%d characters in %d columns: %q", n, columns, line)
			}
		}
	})
}
