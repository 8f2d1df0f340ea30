package terminal

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// cell is one position of a screen. The zero cell is blank.
type cell struct {
	r     rune   // 0 for a space, and in the right half of a wide character
	marks string // characters combined with r, at most maxMarks
	wide  bool   // the cell to the right is its other half
	half  bool   // the cell is that half
	style style
}

// maxMarks bounds the combining characters of a cell, and so its memory.
const maxMarks = 8

// cursor is the position and attributes of the next character. Rows and columns count from 0.
type cursor struct {
	x, y     int
	wrap     bool // the last column was written: the next character wraps first
	pen      style
	charsets [2]byte // 0 ASCII, '0' line drawing, 'A' British
	shift    int     // the active one
	origin   bool    // rows count from the top margin
}

// line is one line of a screen. Cells beyond its length are blank, in the background bg, so that erasing costs nothing.
type line struct {
	cells []cell
	bg    color
}

// extend makes the line at least n cells long.
func (l *line) extend(n int) {
	for len(l.cells) < n {
		l.cells = append(l.cells, cell{style: style{bg: l.bg}})
	}
}

// erase blanks the cells [from, to) of columns columns, in the background bg.
func (l *line) erase(from, to, columns int, bg color) {
	if to >= columns {
		if bg != l.bg {
			l.extend(from)
		}
		l.cells, l.bg = l.cells[:min(from, len(l.cells))], bg
		l.mend(from, from)
		return
	}
	l.extend(to)
	for i := from; i < to; i++ {
		l.cells[i] = cell{style: style{bg: bg}}
	}
	l.mend(from, to)
}

// insert shifts the cells from at on by n to the right within columns columns, and drops the last ones.
func (l *line) insert(at, n, columns int, bg color) {
	l.extend(columns)
	n = min(n, columns-at)
	copy(l.cells[at+n:], l.cells[at:])
	for i := range n {
		l.cells[at+i] = cell{style: style{bg: bg}}
	}
	l.mend(at, at+n)
	l.mend(columns, columns)
}

// remove removes n cells at at.
func (l *line) remove(at, n, columns int, bg color) {
	l.extend(columns)
	n = min(n, columns-at)
	copy(l.cells[at:], l.cells[at+n:])
	for i := columns - n; i < columns; i++ {
		l.cells[i] = cell{style: style{bg: bg}}
	}
	l.mend(at, columns-n)
}

// mend blanks separated halves of wide characters at the ends of the changed range [from, to).
func (l *line) mend(from, to int) {
	c := l.cells
	for _, i := range [...]int{from - 1, from, to - 1, to} {
		if i < 0 || i >= len(c) {
			continue
		}
		if c[i].wide && (i+1 == len(c) || !c[i+1].half) || c[i].half && (i == 0 || !c[i-1].wide) {
			c[i] = cell{style: style{bg: c[i].style.bg}}
		}
	}
}

// cut truncates a line to columns columns.
func (l *line) cut(columns int) {
	l.cells = l.cells[:min(columns, len(l.cells))]
	l.mend(columns, columns)
}

// trimmed returns the cells without trailing blanks.
func (l line) trimmed() []cell {
	c := l.cells
	for l.bg == 0 && len(c) > 0 && c[len(c)-1] == (cell{}) {
		c = c[:len(c)-1]
	}
	return c
}

// plain returns the text of a line.
func (l line) plain() string {
	var b []byte
	for _, c := range l.cells {
		switch {
		case c.half:
		case c.r == 0:
			b = append(b, ' ')
		default:
			b = utf8.AppendRune(b, c.r)
			b = append(b, c.marks...)
		}
	}
	return strings.TrimRight(string(b), " ")
}

// screen is the main or the alternate screen.
type screen struct {
	lines []line
	saved cursor // by DECSC
}

// clear makes the screen blank, with rows lines.
func (c *screen) clear(rows int, bg color) {
	if len(c.lines) != rows {
		c.lines = make([]line, rows)
	}
	blank(c.lines, bg)
}

func blank(lines []line, bg color) {
	for i := range lines {
		lines[i].cells, lines[i].bg = lines[i].cells[:0], bg
	}
}

// resize changes the size. Of surplus lines the first drop go to above.
func (c *screen) resize(s Size, drop int, above func(line)) {
	drop = min(drop, max(0, len(c.lines)-s.Rows))
	for _, l := range c.lines[:drop] {
		above(l)
	}
	lines := make([]line, s.Rows)
	copy(lines, c.lines[drop:])
	for i := range lines {
		lines[i].cut(s.Columns)
	}
	c.lines = lines
	c.saved.x, c.saved.y, c.saved.wrap = min(c.saved.x, s.Columns-1), min(max(0, c.saved.y-drop), s.Rows-1), false
}

// scroll moves the lines [top, end) by n, up or, if negative, down. Lines that leave at the top go to above, which may
// be nil.
func (c *screen) scroll(top, end, n int, bg color, above func(line)) {
	n = max(top-end, min(n, end-top))
	region := c.lines[top:end]
	if above != nil && n > 0 {
		for _, l := range region[:n] {
			above(l)
		}
	}
	switch {
	case n > 0:
		blank(region[:n], bg)
		rotate(region, n)
	case n < 0:
		blank(region[len(region)+n:], bg)
		rotate(region, len(region)+n)
	}
}

// rotate moves line n to the front.
func rotate(lines []line, n int) {
	slices.Reverse(lines[:n])
	slices.Reverse(lines[n:])
	slices.Reverse(lines)
}

// combine adds a mark to a cell.
func (c *cell) combine(r rune) {
	if c.r != 0 && utf8.RuneCountInString(c.marks) < maxMarks {
		c.marks += string(r)
	}
}

// appendText appends cells as text in their styles, beginning in the style was, and returns the final style.
func appendText(b []byte, cells []cell, was style) ([]byte, style) {
	for _, c := range cells {
		if c.half {
			continue
		}
		if c.style != was {
			b, was = c.style.append(b), c.style
		}
		if c.r == 0 {
			b = append(b, ' ')
			continue
		}
		b = utf8.AppendRune(b, c.r)
		b = append(b, c.marks...)
	}
	return b, was
}
