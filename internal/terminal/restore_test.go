package terminal

import (
	"fmt"
	"regexp"
	"testing"
)

// sent matches an escape sent that Redraw and Restore send, or a control character.
var sent = regexp.MustCompile(`\x1b\[([?]?)([0-9;]*)( ?[a-zA-Z])|\x1b\][^\x1b]*\x1b\\|\x1b[()]B|\x1b.|[\r\n\x0f]`)

// xterm follows the cursor as xterm moves it: leaving the alternate screen restores the saved cursor, also on the main
// screen.
func xterm(b []byte, row, column, savedRow, savedColumn int) (int, int) {
	for _, m := range sent.FindAllSubmatch(b, -1) {
		switch private, final := string(m[1]), string(m[3]); {
		case final == "H":
			row, column = 1, 1
			fmt.Sscanf(string(m[2]), "%d;%d", &row, &column)
		case final == "r" && private == "":
			row, column = 1, 1
		case string(m[0]) == "\x1b7":
			savedRow, savedColumn = row, column
		case string(m[0]) == "\x1b8", string(m[0]) == "\x1b[?1049l":
			row, column = savedRow, savedColumn
		}
	}
	return row, column
}

// TestRestoreKeepsTheCursor: a shell's prompt comes below what a program has printed on the main screen.
func TestRestoreKeepsTheCursor(t *testing.T) {
	if row, column := xterm(Restore(Size{Rows: 12, Columns: 60}), 7, 3, 1, 1); row != 7 || column != 3 {
		t.Errorf("the cursor is at %d;%d, and was at 7;3", row, column)
	}
}
