package ui

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Table lays out rows under headings, two spaces between columns. Cells are made safe for a terminal.
func Table(headings []string, rows [][]string) string {
	all := append([][]string{headings}, rows...)
	widths := make([]int, len(headings))
	for i, row := range all {
		safe := make([]string, len(row))
		for j, cell := range row {
			safe[j] = Printable(cell)
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

// Facts lays out names and values.
func Facts(rows [][2]string) string {
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r[0] + strings.Repeat(" ", width-utf8.RuneCountInString(r[0])+2) + Printable(r[1]) + "\n")
	}
	return b.String()
}

func Brackets(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
