package terminal

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Lines passes the output of an untrusted program that has no terminal of its own on to a person's: text, the color
// and attributes of text, and what progress bars do on the lines that the program itself has written. It passes no
// title, no link, no mode, no query, and nothing else that a terminal would answer or remember. The zero Lines is
// ready; its methods may not be called concurrently.
//
// Terminal needs a screen of its own for what it passes. Lines is for output that goes between other text.
type Lines struct {
	parser
	pen    style
	hidden bool // the cursor
	below  int  // lines of the program above the cursor, which it may go back to
	lower  int  // and those beneath it, where it has gone back
	marks  int  // consecutive zero-width characters
	show   []byte
}

// maxBack bounds how many lines a program may go back, as for several progress bars.
const maxBack = 100

// Write returns what passes. The result is valid until the next call.
func (l *Lines) Write(p []byte) []byte {
	l.show, l.lines = l.show[:0], true
	l.parse(p, l)
	return l.show
}

// Leave is Calm before other text that stays: the program can no longer go back to its earlier lines.
func (l *Lines) Leave() []byte {
	l.below, l.lower = 0, 0
	return l.Calm()
}

// Calm returns the sequences after which other text looks as if the program had written nothing.
func (l *Lines) Calm() []byte {
	var b []byte
	b = when(b, l.pen != style{}, "\x1b[0m")
	return when(b, l.hidden, "\x1b[?25h")
}

// Resume returns the sequences that undo Calm.
func (l *Lines) Resume() []byte {
	var b []byte
	if l.pen != (style{}) {
		b = l.pen.append(b)
	}
	return when(b, l.hidden, "\x1b[?25l")
}

func (l *Lines) print(r rune) {
	if r >= 0x80 && (r < 0xa0 || !printable(r)) {
		return
	}
	if r >= 0x300 && widths.RuneWidth(r) == 0 {
		if l.marks++; l.marks > maxMarks {
			return
		}
	} else {
		l.marks = 0
	}
	l.show = utf8.AppendRune(l.show, r)
}

func (l *Lines) execute(c byte) {
	l.marks = 0
	switch c {
	case '\v', '\f':
		c = '\n'
		fallthrough
	case '\n':
		if l.lower > 0 {
			l.lower--
		}
		l.below = min(l.below+1, maxBack)
	case '\a', '\b', '\t', '\r':
	default:
		return
	}
	l.show = append(l.show, c)
}

func (l *Lines) escape(byte, byte) { l.marks = 0 }

func (l *Lines) command([]byte) { l.marks = 0 }

func (l *Lines) control(q *sequence) {
	l.marks = 0
	set := q.final == 'h' || q.final == 'l'
	if q.prefix == '?' && q.intermediate == 0 && set && slices.Equal(q.params, []int{25}) {
		l.hidden = q.final == 'l'
		l.show = fmt.Appendf(l.show, "\x1b[?25%c", q.final)
		return
	}
	if q.prefix != 0 || q.intermediate != 0 {
		return
	}
	if q.final == 'm' {
		l.pen.apply(q)
		l.show = l.pen.append(l.show)
		return
	}
	n := q.number(MaxSize.Columns)
	switch q.final {
	case 'A', 'F':
		if n = min(n, l.below); n == 0 {
			return
		}
		l.below, l.lower = l.below-n, l.lower+n
	case 'B', 'E':
		if n = min(n, l.lower); n == 0 {
			return
		}
		l.below, l.lower = l.below+n, l.lower-n
	case 'C', 'D', 'G', '@', 'P', 'X':
	case 'K':
		if n = q.param(0, 0); n > 2 {
			return
		}
	case 'J': // what is beneath the cursor is the program's own, or empty
		if n = q.param(0, 0); n != 0 {
			return
		}
	default:
		return
	}
	l.show = fmt.Appendf(l.show, "\x1b[%d%c", n, q.final)
}
