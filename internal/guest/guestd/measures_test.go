package guestd

import "testing"

func TestWindowSize(t *testing.T) {
	for asked, want := range map[[2]uint16][2]uint16{{}: {24, 80}, {0, 9}: {24, 80}, {9, 0}: {24, 80}, {9, 8}: {9, 8}} {
		if rows, cols := WindowSize(asked[0], asked[1]); [2]uint16{rows, cols} != want {
			t.Errorf("%v makes %d and %d", asked, rows, cols)
		}
	}
}

func TestNumber(t *testing.T) {
	const io = "rchar: 7\nwchar: 123\nsyscr: x\n"
	for name, want := range map[string]int64{"rchar: ": 7, "wchar: ": 123, "syscr: ": 0, "none: ": 0} {
		if n := Number([]byte(io), name); n != want {
			t.Errorf("%s%d", name, n)
		}
	}
}
