package ui

import (
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/pattern"
)

// Table lays out rows under headings, two spaces between columns. Cells are made safe for a terminal.
func Table(headings []string, rows [][]string) string {
	return fitted(append([][]string{headings}, rows...), 0)
}

// firstCells returns the names in a table: of each row the first word, on a line.
func firstCells(rows [][]string) string {
	var b strings.Builder
	for _, row := range rows[1:] {
		name, _, _ := strings.Cut(row[0], " ")
		b.WriteString(Printable(name) + "\n")
	}
	return b.String()
}

// tableWidth is how wide tables may be: as wide as the terminal, and without one as wide as they are.
func (t *Terminal) tableWidth() int {
	if !IsTerminal(t.Out) {
		return 0
	}
	return Columns(t.Out)
}

const (
	columnGap = 2
	// narrowest is how narrow a column is made at most.
	narrowest = 6
)

// fitted lays out rows, of which the first has the headings, in so many columns; 0 is any number. With a width, ids are
// shortened to beginnings that commands take, and the widest columns are cut, except the first, which names the row.
func fitted(rows [][]string, columns int) string {
	safe := make([][]string, len(rows))
	widths := make([]int, len(rows[0]))
	for i, row := range rows {
		safe[i] = make([]string, len(row))
		for j, cell := range row {
			if cell = Printable(cell); columns > 0 {
				cell = ShortID(cell)
			}
			safe[i][j] = cell
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
		}
	}
	if columns > 0 {
		narrow(widths, columns)
	}
	var b strings.Builder
	for _, row := range safe {
		var line strings.Builder
		for j, cell := range row {
			cell = cut(cell, widths[j])
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+columnGap))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// narrow makes the widest columns narrower, until all fit or none can be.
func narrow(widths []int, columns int) {
	total := columnGap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > columns; total-- {
		widest := 0
		for j := 1; j < len(widths); j++ {
			if widest == 0 || widths[j] > widths[widest] {
				widest = j
			}
		}
		if widest == 0 || widths[widest] <= narrowest {
			return
		}
		widths[widest]--
	}
}

// cut is at most so many characters of a text, the last of which says that there are more.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// takenShort matches the ids of which commands take a beginning.
var takenShort = pattern.New(`^(ex|ru|sb)_[0-9a-z]{26}$`)

// shortID is how much of an id tables show at a terminal, in characters: 40 of its bits.
const shortID = len("ex_") + 8

// ShortID is the beginning of an id, and any other text as it is.
func ShortID(text string) string {
	if takenShort.MatchString(text) {
		return text[:shortID]
	}
	return text
}
