// Package terminal is a model of a terminal with an untrusted program. It tracks the screen, passes harmless output on
// to people's real terminals, answers the program's queries, and can put a fresh terminal into the same state.
//
// # What a program may do to a terminal
//
// A program's output controls the terminal of every viewer. Some terminals can be made to type, to read and write files
// and clipboards, to print, and to notify. So only known harmless output passes:
//
//   - text, the usual control characters, cursor movement, erasing, scrolling,
//     colors and attributes, character sets, tab stops and cursor shapes pass;
//   - modes that programs use for full screens, mouse and paste pass;
//   - a title passes as plain text, a hyperlink when it leads to the web;
//   - queries are answered here and do not pass. So there is exactly one answer,
//     with no viewer or several, and none that comes so late that a
//     shell of the machine reads it as input;
//   - everything else does not pass: the clipboard (OSC 52), files and pictures
//     (OSC 1337, DCS, APC), notifications (OSC 9, 777), palettes, printing,
//     window operations, the scrollback's deletion, keyboard protocols.
//
// Output that passes is rendered again from its parsed form, so that no terminal can interpret it differently. A
// Terminal's memory is bounded by its size, however much a program writes.
package terminal

import (
	"strconv"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Size is the size of a terminal, in characters.
type Size struct{ Rows, Columns int }

// The maximum and the default size.
var (
	MaxSize     = Size{Rows: 250, Columns: 600}
	DefaultSize = Size{Rows: 24, Columns: 80}
)

// Clamp returns the nearest permitted size.
func (s Size) Clamp() Size {
	if s.Rows <= 0 || s.Columns <= 0 {
		return DefaultSize
	}
	return Size{Rows: min(s.Rows, MaxSize.Rows), Columns: max(2, min(s.Columns, MaxSize.Columns))}
}

// Terminal is the model. Its methods may not be called concurrently.
type Terminal struct {
	parser
	size     Size
	main     screen
	other    screen // the alternate one
	on       *screen
	alt      int // the mode that entered the alternate screen; 0 on the main one
	entered  cursor
	at       cursor
	top, end int // the scrolling region: from line top to before line end
	insert   bool
	newline  bool // a line feed implies a carriage return
	noWrap   bool
	shape    int // of the cursor, as in DECSCUSR
	invis    bool
	keypad   bool
	modes    map[int]bool // the set ones among kept
	tabs     []bool
	title    string
	last     rune // for REP
	marks    int  // consecutive zero-width characters
	history  history

	// Foreground and Background answer queries of the colors, as in "rgb:0000/0000/0000". Empty gives no answer.
	Foreground, Background string

	show   []byte
	answer []byte
	again  bool // viewers need a complete redraw
}

// maxShow bounds the output that one call of Write passes: beyond it, a redraw is smaller.
const maxShow = 1 << 20

// New returns a fresh terminal.
func New(s Size) *Terminal {
	t := &Terminal{size: s.Clamp()}
	t.reset()
	return t
}

func (t *Terminal) reset() {
	for _, c := range []*screen{&t.main, &t.other} {
		c.clear(t.size.Rows, 0)
		c.saved = cursor{}
	}
	t.on, t.alt = &t.main, 0
	t.at = cursor{}
	t.top, t.end = 0, t.size.Rows
	t.insert, t.newline, t.noWrap, t.invis, t.keypad, t.shape = false, false, false, false, false, 0
	t.modes = map[int]bool{}
	t.tabs = defaultTabs(t.size.Columns)
	t.last, t.title = 0, ""
}

func defaultTabs(columns int) []bool {
	tabs := make([]bool, columns)
	for i := 8; i < columns; i += 8 {
		tabs[i] = true
	}
	return tabs
}

// Alternate reports whether the alternate screen is active, which full-screen programs use.
func (t *Terminal) Alternate() bool { return t.alt != 0 }

// Size returns the terminal's size.
func (t *Terminal) Size() Size { return t.size }

// Title returns the window title: plain text, at most maxTitle characters.
func (t *Terminal) Title() string { return t.title }

// Unfinished returns the number of bytes, at the end of the input, of an incomplete sequence.
func (t *Terminal) Unfinished() int { return t.pending }

// Write processes a program's output for viewers, and answers its queries. Results are valid until the next call.
func (t *Terminal) Write(p []byte) (show, answer []byte) {
	t.show, t.answer, t.again = t.show[:0], t.answer[:0], false
	t.parse(p, t)
	if t.again {
		t.show = append(t.show[:0], t.Redraw(t.size, true)...)
	}
	return t.show, t.answer
}

// Resize changes the size without reflowing lines. Real terminals need a redraw: they differ in what they then show.
func (t *Terminal) Resize(s Size) {
	if s = s.Clamp(); s == t.size {
		return
	}
	drop := max(0, t.at.y-s.Rows+1)
	if t.alt == 0 {
		t.main.resize(s, drop, t.history.add)
	} else {
		t.main.resize(s, max(0, t.entered.y-s.Rows+1), t.history.add)
	}
	t.other.resize(s, drop, func(line) {})
	t.size = s
	t.top, t.end = 0, s.Rows
	for _, c := range []*cursor{&t.at, &t.entered} {
		c.y = min(max(0, c.y-max(0, c.y-s.Rows+1)), s.Rows-1)
		c.x, c.wrap = min(c.x, s.Columns-1), false
	}
	tabs := defaultTabs(s.Columns)
	copy(tabs, t.tabs)
	t.tabs = tabs
}

func (t *Terminal) line() *line { return &t.on.lines[t.at.y] }

// widths are the widths of characters, with ambiguous ones narrow, independently of the environment.
var widths = &runewidth.Condition{StrictEmojiNeutral: true}

func (t *Terminal) print(r rune) {
	if r >= 0x80 && (r < 0xa0 || !printable(r)) {
		return
	}
	w := 1
	if r >= 0x300 {
		w = widths.RuneWidth(r)
	}
	if w == 0 {
		t.mark(r)
		return
	}
	t.marks, t.last = 0, r
	t.put(r, w)
	if len(t.show) > maxShow {
		t.show, t.again = t.show[:0], true
	}
	t.show = utf8.AppendRune(t.show, r)
}

// printable refuses characters that change the direction or language of later text, which can then imitate other text.
func printable(r rune) bool {
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r >= 0xe0000 && r <= 0xe007f:
		return false
	case r == 0x2028 || r == 0x2029 || r == 0x00ad || r == 0xfeff:
		return false
	}
	return true
}

func (t *Terminal) mark(r rune) {
	if t.marks++; t.marks > maxMarks {
		return
	}
	l, x := t.line().cells, t.at.x
	if !t.at.wrap {
		x--
	}
	if x > 0 && x < len(l) && l[x].half {
		x--
	}
	if x >= 0 && x < len(l) {
		l[x].combine(r)
	}
	t.show = utf8.AppendRune(t.show, r)
}

func (t *Terminal) put(r rune, w int) {
	at := &t.at
	if r < 0x80 {
		r = translate(at.charsets[at.shift], r)
	}
	if (at.wrap || w > 1 && at.x > t.size.Columns-w) && !t.noWrap {
		at.x, at.wrap = 0, false
		t.index()
	}
	at.wrap = false
	at.x = min(at.x, t.size.Columns-w)
	l := t.line()
	if t.insert {
		l.insert(at.x, w, t.size.Columns, at.pen.bg)
	}
	if r == ' ' {
		r = 0
	}
	l.extend(at.x + w)
	l.cells[at.x] = cell{r: r, wide: w > 1, style: at.pen}
	if w > 1 {
		l.cells[at.x+1] = cell{half: true, style: at.pen}
	}
	l.mend(at.x, at.x+w)
	if at.x += w; at.x >= t.size.Columns {
		at.x, at.wrap = t.size.Columns-1, !t.noWrap
	}
}

// drawing are the characters of DEC Special Graphics from 0x60 on.
var drawing = []rune("◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

func translate(charset byte, r rune) rune {
	switch {
	case charset == '0' && r >= 0x60 && r < 0x7f:
		return drawing[r-0x60]
	case charset == 'A' && r == '#':
		return '£'
	}
	return r
}

// index moves down a line, and scrolls at the end of the region.
func (t *Terminal) index() {
	switch {
	case t.at.y == t.end-1:
		t.scrollUp(t.top, 1)
	case t.at.y < t.size.Rows-1:
		t.at.y++
	}
}

func (t *Terminal) reverseIndex() {
	switch {
	case t.at.y == t.top:
		t.on.scroll(t.top, t.end, -1, t.at.pen.bg, nil)
	case t.at.y > 0:
		t.at.y--
	}
}

// scrollUp moves the lines of the region from top on up. Lines that leave the screen become history.
func (t *Terminal) scrollUp(top, n int) {
	above := t.history.add
	if t.alt != 0 || top > 0 {
		above = nil
	}
	t.on.scroll(top, t.end, n, t.at.pen.bg, above)
}

func (t *Terminal) execute(c byte) {
	t.marks = 0
	at := &t.at
	switch c {
	case '\a':
	case '\b':
		at.x, at.wrap = max(0, at.x-1), false
	case '\t':
		t.tab(1)
	case '\n', '\v', '\f':
		t.index()
		if at.wrap = false; t.newline {
			at.x = 0
		}
	case '\r':
		at.x, at.wrap = 0, false
	case 0x0e, 0x0f:
		at.shift = int(0x0f - c)
	default: // ENQ, which terminals answer, and meaningless ones
		return
	}
	t.show = append(t.show, c)
}

// tab moves to the nth tab stop, to the left when n is below 0.
func (t *Terminal) tab(n int) {
	step := 1
	if n < 0 {
		step, n = -1, -n
	}
	for x := t.at.x + step; n > 0 && x >= 0 && x < t.size.Columns; x += step {
		t.at.x = x
		if t.tabs[x] {
			n--
		}
	}
	t.at.wrap = t.at.wrap && step > 0
}

func (t *Terminal) escape(intermediate, final byte) {
	t.marks = 0
	switch intermediate {
	case 0:
		if !t.simpleEscape(final) {
			return
		}
		t.show = append(t.show, 0x1b, final)
	case '(', ')':
		if final != 'B' && final != '0' && final != 'A' {
			return
		}
		if t.at.charsets[intermediate-'('] = final; final == 'B' {
			t.at.charsets[intermediate-'('] = 0
		}
		t.show = append(t.show, 0x1b, intermediate, final)
	}
}

func (t *Terminal) simpleEscape(final byte) bool {
	at := &t.at
	switch final {
	case '7':
		t.on.saved = *at
	case '8':
		t.restore()
	case 'D':
		t.index()
		at.wrap = false
	case 'E':
		t.index()
		at.x, at.wrap = 0, false
	case 'H':
		t.tabs[at.x] = true
	case 'M':
		t.reverseIndex()
		at.wrap = false
	case '=', '>':
		t.keypad = final == '='
	case 'c':
		t.reset()
		t.again = true // instead of RIS, which does more on some terminals
		return false
	default:
		return false
	}
	return true
}

func (t *Terminal) restore() {
	t.at = t.on.saved
	t.at.x, t.at.y = min(t.at.x, t.size.Columns-1), min(t.at.y, t.size.Rows-1)
	t.at.wrap = t.at.wrap && !t.noWrap
	if t.at.origin {
		t.at.y = max(t.top, min(t.at.y, t.end-1))
	}
}

func (t *Terminal) reply(s string) { t.answer = append(t.answer, s...) }

func (t *Terminal) pass(q *sequence) { t.show = q.append(t.show) }

func (q *sequence) append(b []byte) []byte {
	b = append(b, "\x1b["...)
	if q.prefix != 0 {
		b = append(b, q.prefix)
	}
	for i, p := range q.params {
		switch {
		case i > 0 && q.colon[i]:
			b = append(b, ':')
		case i > 0:
			b = append(b, ';')
		}
		if p >= 0 {
			b = strconv.AppendInt(b, int64(p), 10)
		}
	}
	if q.intermediate != 0 {
		b = append(b, q.intermediate)
	}
	return append(b, q.final)
}
