package terminal

import (
	"fmt"
	"slices"
	"strconv"
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

func (l *line) cut(columns int) {
	l.cells = l.cells[:min(columns, len(l.cells))]
	l.mend(columns, columns)
}

func (l line) trimmed() []cell {
	c := l.cells
	for l.bg == 0 && len(c) > 0 && c[len(c)-1] == (cell{}) {
		c = c[:len(c)-1]
	}
	return c
}

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

type screen struct {
	lines []line
	saved cursor // by DECSC
}

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

// scroll moves the lines [top, end) up by n, or down if negative. Lines that leave at the top go to above, if not nil.
func (c *screen) scroll(top, end, n int, bg color, above func(line)) {
	n = max(top-end, min(n, end-top))
	region := c.lines[top:end]
	if above != nil && n > 0 {
		for _, l := range region[:n] {
			above(l)
		}
	}
	first := n // the line that comes to the front
	if n > 0 {
		blank(region[:n], bg)
	} else {
		first = len(region) + n
		blank(region[first:], bg)
	}
	slices.Reverse(region[:first])
	slices.Reverse(region[first:])
	slices.Reverse(region)
}

func (c *cell) combine(r rune) {
	if c.r != 0 && utf8.RuneCountInString(c.marks) < maxMarks {
		c.marks += string(r)
	}
}

// appendLine appends cells as text that begins and ends in the default style.
func appendLine(b []byte, cells []cell) []byte {
	b, end := appendText(b, cells, style{})
	return when(b, end != style{}, "\x1b[0m")
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

// color is 0 for the default, indexed|n for one of the 256, direct|RGB.
type color uint32

const (
	indexed color = 1 << 24
	direct  color = 2 << 24
)

type attribute uint16

const (
	bold attribute = 1 << iota
	dim
	italic
	blink
	reverse
	hidden
	struck
	overlined
	// The kind of underline is a number: 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
	underlineUnit
	underlineMask = 7 * underlineUnit
)

// style is the appearance of a cell. The zero style is the default.
type style struct {
	fg, bg, ul color
	attributes attribute
}

// color returns the color of the parameters that begin with a number: 30 to 39, 40 to 49 or 50 to 59.
func (s *style) color(tens int) *color { return [...]*color{3: &s.fg, 4: &s.bg, 5: &s.ul}[tens] }

func (s *style) underline(kind int) {
	s.attributes = s.attributes&^underlineMask | attribute(kind)*underlineUnit
}

// marks maps a parameter to the attribute that it sets; other parameters clear attributes.
var marks = map[int]attribute{1: bold, 2: dim, 3: italic, 5: blink, 6: blink, 7: reverse, 8: hidden,
	9: struck, 53: overlined}
var unmarks = map[int]attribute{22: bold | dim, 23: italic, 25: blink, 27: reverse, 28: hidden, 29: struck,
	55: overlined, 24: underlineMask}

func (s *style) apply(q *sequence) {
	if len(q.params) == 0 {
		*s = style{}
	}
	for i := 0; i < len(q.params); {
		end := i + 1
		for end < len(q.params) && q.colon[end] {
			end++
		}
		i = s.one(q.params, i, end)
	}
}

// one applies parameter i, whose subparameters end before end, and returns the next index.
func (s *style) one(params []int, i, end int) int {
	n := max(params[i], 0)
	switch {
	case n == 0:
		*s = style{}
	case n == 4:
		kind := 1
		if end > i+1 {
			kind = max(params[i+1], 0)
		}
		if kind <= 5 {
			s.underline(kind)
		}
	case n == 21:
		s.underline(2)
	case marks[n] != 0:
		s.attributes |= marks[n]
	case unmarks[n] != 0:
		s.attributes &^= unmarks[n]
	case n == 38 || n == 48 || n == 58:
		c, next, ok := extended(params, i, end)
		if ok {
			*s.color(n / 10) = c
		}
		return next
	case n == 39 || n == 49 || n == 59:
		*s.color(n / 10) = 0
	case n >= 30 && n <= 47:
		*s.color(n / 10) = indexed | color(n%10)
	case n >= 90 && n <= 97 || n >= 100 && n <= 107: // the bright ones
		*s.color(n/10 - 6) = indexed | color(n%10+8)
	}
	return end
}

// extended reads the color after 38, 48 or 58 at i: 5 and an index, or 2 and red, green, blue. Colons separate them
// (then 2 may be followed by a color space), or semicolons.
func extended(params []int, i, end int) (c color, next int, ok bool) {
	rest := params[i+1:]
	if end > i+1 {
		rest, next = params[i+1:end], end
		if len(rest) >= 5 && rest[0] == 2 {
			rest = append([]int{2}, rest[2:5]...)
		}
	}
	switch {
	case len(rest) >= 2 && rest[0] == 5:
		c, ok = indexed|color(max(rest[1], 0)), rest[1] <= 255
		next = max(next, i+3)
	case len(rest) >= 4 && rest[0] == 2:
		c, ok = direct, true
		for _, v := range rest[1:4] {
			ok = ok && v <= 255
			c = c&^0xffffff | direct | (c<<8|color(max(v, 0)&0xff))&0xffffff
		}
		next = max(next, i+5)
	default:
		next = max(next, len(params)) // the meaning of the rest is unknown
	}
	return c, next, ok
}

func (s style) append(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	for _, n := range []int{1, 2, 3, 5, 7, 8, 9, 53} {
		if s.attributes&marks[n] != 0 {
			b = strconv.AppendInt(append(b, ';'), int64(n), 10)
		}
	}
	switch kind := s.attributes & underlineMask / underlineUnit; {
	case kind == 1:
		b = append(b, ";4"...)
	case kind > 1:
		b = fmt.Appendf(b, ";4:%d", kind)
	}
	b = appendColor(b, s.fg, 30, 90, 38)
	b = appendColor(b, s.bg, 40, 100, 48)
	b = appendColor(b, s.ul, 0, 0, 58)
	return append(b, 'm')
}

// appendColor appends a color as parameters: low and bright begin the eight short and bright ones, 0 if there are none.
func appendColor(b []byte, c color, low, bright, long int) []byte {
	n := int(c & 0xffffff)
	switch {
	case c == 0:
		return b
	case c&direct != 0:
		return fmt.Appendf(b, ";%d;2;%d;%d;%d", long, n>>16, n>>8&0xff, n&0xff)
	case low > 0 && n < 8:
		return fmt.Appendf(b, ";%d", low+n)
	case low > 0 && n < 16:
		return fmt.Appendf(b, ";%d", bright+n-8)
	}
	return fmt.Appendf(b, ";%d;5;%d", long, n)
}
