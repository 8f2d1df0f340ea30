package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Restore returns the sequences that put a terminal of size s back into the state that shells expect, on the main
// screen, whatever the program has done. The cursor stays: it is saved first, since xterm and others restore a saved one
// when they leave the alternate screen, also where they are on the main one.
func Restore(s Size) []byte {
	b := []byte("\x1b7\x1b[?1049l\x1b[?47l\x1b7" + calm + "\x1b]8;;\x1b\\\x1b[?25h\x1b[0 q")
	b = appendTabs(b, defaultTabs(s.Columns))
	return append(b, "\x1b8\x1b(B\x1b)B\x0f\x1b[0m"...)
}

// appendTabs appends sequences that set tab stops. They move the cursor.
func appendTabs(b []byte, tabs []bool) []byte {
	b = append(b, "\x1b[3g"...)
	for x, set := range tabs {
		if set {
			b = fmt.Appendf(b, "\x1b[1;%dH\x1bH", x+1)
		}
	}
	return b
}

// calm resets every mode that a Terminal passes, except the cursor's.
const calm = "\x1b[0m\x1b(B\x1b)B\x0f\x1b[4l\x1b[20l\x1b[?6l\x1b[r\x1b[?7h\x1b[?5l\x1b[?1l\x1b>\x1b[?12l" +
	"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?2026l"

// Redraw returns the sequences that put a real terminal of size s into the state of this one. A larger terminal is
// blank beyond it, and a smaller one shows the surroundings of the cursor. Only terminals of the same size can
// interpret later output correctly.
//
// With whole, the terminal may be in any state; otherwise it has been up to date before, and is on the right screen.
func (t *Terminal) Redraw(s Size, whole bool) []byte {
	b := when([]byte("\x1b[?2026h\x1b[?25l"), whole, "\x1b[?1049l\x1b[?47l")
	b = append(b, calm+"\x1b[?2026h"...)
	if whole && t.alt != 0 {
		b = t.main.paint(b, s, t.entered.y)
		b = t.save(b, &t.main, s, t.entered.y)
		b = when(b, t.entered.origin, "\x1b[?6h")
		b = t.place(b, &t.main, t.entered, s, t.entered.y, 0)
		b = fmt.Appendf(b, "\x1b[?%dh\x1b[?6l\x1b(B\x1b)B\x0f", t.alt)
	}
	b = t.on.paint(b, s, t.at.y)
	if s == t.size {
		b = t.exact(b, whole)
	} else {
		b = t.place(b, t.on, t.at, s, t.at.y, 0)
	}
	for _, m := range kept {
		if t.modes[m] {
			b = fmt.Appendf(b, "\x1b[?%dh", m)
		}
	}
	b = when(b, t.keypad, "\x1b=")
	b = fmt.Appendf(b, "\x1b[%d q\x1b]2;%s\x1b\\\x1b[?2026l", t.shape, t.title)
	return when(b, !t.invis, "\x1b[?25h")
}

func when(b []byte, holds bool, text string) []byte {
	if holds {
		b = append(b, text...)
	}
	return b
}

// paint draws the lines of a screen that fit, with row y among them.
func (c *screen) paint(b []byte, s Size, y int) []byte {
	first := max(0, y-s.Rows+1)
	for row := range s.Rows {
		b = fmt.Appendf(b, "\x1b[%d;1H\x1b[0m", row+1)
		var l line
		if first+row < len(c.lines) {
			l = c.lines[first+row]
		}
		if len(l.cells) > s.Columns || l.bg != 0 {
			l.cells = slices.Clone(l.cells)
			l.extend(s.Columns)
			l.cut(s.Columns)
		}
		text := l.trimmed()
		b = when(appendLine(b, text), len(text) < s.Columns, "\x1b[K")
	}
	return b
}

// place gives a terminal of size s, with row y in sight, the cursor c; in origin mode its rows count from top.
func (t *Terminal) place(b []byte, on *screen, c cursor, s Size, y, top int) []byte {
	row := c.y - max(0, y-s.Rows+1) - top
	b = fmt.Appendf(b, "\x1b[%d;%dH", max(0, min(row, s.Rows-1))+1, min(c.x, s.Columns-1)+1)
	if c.wrap && s == t.size {
		b = touch(b, on.lines[c.y], s.Columns)
	}
	b = c.pen.append(b)
	for i, set := range c.charsets {
		set = cmp.Or(set, 'B')
		b = append(b, 0x1b, byte('('+i), set)
	}
	return append(b, byte(0x0f-c.shift))
}

func touch(b []byte, l line, columns int) []byte {
	l.cells = slices.Clone(l.cells)
	l.extend(columns)
	x := columns - 1
	if l.cells[x].half {
		x--
		b = append(b, '\b')
	}
	last := l.cells[x]
	b, _ = appendText(append(last.style.append(b), "\x1b(B\x0f"...), l.cells[x:], last.style)
	return b
}

// save makes a terminal, which has no margins, save the cursor that a screen has saved.
func (t *Terminal) save(b []byte, on *screen, s Size, y int) []byte {
	b = when(b, on.saved.origin, "\x1b[?6h")
	b = t.place(b, on, on.saved, s, y, 0)
	return append(b, "\x1b7\x1b[?6l"...)
}

func (t *Terminal) exact(b []byte, whole bool) []byte {
	if whole {
		b = appendTabs(b, t.tabs)
	}
	b = t.save(b, t.on, t.size, 0)
	if t.top != 0 || t.end != t.size.Rows {
		b = fmt.Appendf(b, "\x1b[%d;%dr", t.top+1, t.end)
	}
	top := 0
	if t.at.origin {
		b, top = append(b, "\x1b[?6h"...), t.top
	}
	b = t.place(b, t.on, t.at, t.size, 0, top)
	b = when(b, t.insert, "\x1b[4h")
	b = when(b, t.newline, "\x1b[20h")
	return when(b, t.noWrap, "\x1b[?7l")
}

// History returns the last lines of scrollback, for a real terminal to scroll: written on a clear screen before Redraw.
func (t *Terminal) History(lines int) []byte {
	var b []byte
	for _, l := range t.history.last(lines) {
		b = append(b, l+"\x1b[0m\r\n"...)
	}
	if len(b) > 0 { // scroll it out of view
		b = append(b, strings.Repeat("\n", t.size.Rows-1)...)
	}
	return b
}

// Text returns history, main screen and, if active, alternate screen as plain text.
func (t *Terminal) Text() string {
	var b strings.Builder
	for _, l := range t.history.last(maxHistoryLines) {
		b.WriteString(strip(l) + "\n")
	}
	screens := []*screen{&t.main}
	if t.alt != 0 {
		screens = append(screens, &t.other)
	}
	for _, c := range screens {
		lines := c.lines
		for len(lines) > 0 && lines[len(lines)-1].plain() == "" {
			lines = lines[:len(lines)-1]
		}
		for _, l := range lines {
			b.WriteString(l.plain() + "\n")
		}
	}
	return b.String()
}

// Limits of the history's memory.
const (
	maxHistoryLines = 5000
	maxHistoryBytes = 1 << 20
)

// history is the scrollback of the main screen, oldest first, as text with SGR.
type history struct {
	lines []string
	bytes int
	buf   []byte
}

func (h *history) add(l line) {
	h.buf = appendLine(h.buf[:0], l.trimmed())
	h.lines = append(h.lines, string(h.buf))
	h.bytes += len(h.buf)
	for len(h.lines) > maxHistoryLines || h.bytes > maxHistoryBytes {
		h.bytes -= len(h.lines[0])
		h.lines[0] = ""
		h.lines = h.lines[1:]
	}
}

func (h *history) clear() { h.lines, h.bytes = nil, 0 }

func (h *history) last(n int) []string { return h.lines[max(0, len(h.lines)-n):] }

func strip(l string) string {
	var b strings.Builder
	for l != "" {
		text, rest, found := strings.Cut(l, "\x1b[")
		b.WriteString(text)
		if !found {
			break
		}
		_, l, _ = strings.Cut(rest, "m")
	}
	return strings.TrimRight(b.String(), " ")
}
