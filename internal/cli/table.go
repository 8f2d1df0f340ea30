package cli

import (
	"strings"
	"unicode/utf8"
)

// table lays out rows under headings, two spaces between columns. Cells are
// made safe for a terminal.
func table(headings []string, rows [][]string) string {
	all := append([][]string{headings}, rows...)
	widths := make([]int, len(headings))
	for i, row := range all {
		safe := make([]string, len(row))
		for j, cell := range row {
			safe[j] = printable(cell)
			widths[j] = max(widths[j], utf8.RuneCountInString(safe[j]))
		}
		all[i] = safe
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// facts lays out names and values.
func facts(rows [][2]string) string {
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r[0] + strings.Repeat(" ", width-utf8.RuneCountInString(r[0])+2) + printable(r[1]) + "\n")
	}
	return b.String()
}
