package terminal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

func (t *Terminal) control(q *sequence) {
	t.marks = 0
	if q.final != 'm' && slices.Contains(q.colon, true) {
		return
	}
	switch {
	case q.prefix == 0 && q.intermediate == 0:
		t.plainControl(q)
	case q.prefix == '?' && q.intermediate == 0 && (q.final == 'h' || q.final == 'l'):
		for _, m := range q.params {
			t.private(m, q.final == 'h')
		}
	case q.prefix == 0 && q.intermediate == '!' && q.final == 'p': // DECSTR
		t.softReset()
		t.pass(q)
	case q.prefix == 0 && q.intermediate == ' ' && q.final == 'q': // DECSCUSR
		if n := q.param(0, 0); n <= 6 {
			t.shape = n
			t.pass(q)
		}
	default:
		t.question(q)
	}
}

// question answers a query. Queries never pass.
func (t *Terminal) question(q *sequence) {
	switch key := string([]byte{q.prefix, q.intermediate, q.final}); {
	case key == "\x00\x00c" && q.param(0, 0) == 0: // a VT220 with colors
		t.reply("\x1b[?62;22c")
	case key == ">\x00c" && q.param(0, 0) == 0:
		t.reply("\x1b[>1;1;0c")
	case key == ">\x00q" && q.param(0, 0) == 0:
		t.reply("\x1bP>|cove\x1b\\")
	case key == "\x00\x00n" && q.param(0, 0) == 5:
		t.reply("\x1b[0n")
	case (key == "\x00\x00n" || key == "?\x00n") && q.param(0, 0) == 6:
		y := t.at.y
		if t.at.origin {
			y -= t.top
		}
		prefix := ""
		if q.prefix != 0 {
			prefix = "?"
		}
		t.reply(fmt.Sprintf("\x1b[%s%d;%dR", prefix, y+1, t.at.x+1))
	case key == "\x00\x00t" && q.param(0, 0) == 18:
		t.reply(fmt.Sprintf("\x1b[8;%d;%dt", t.size.Rows, t.size.Columns))
	case key == "?$p" && len(q.params) == 1:
		t.reply(fmt.Sprintf("\x1b[?%d;%d$y", max(q.params[0], 0), t.setting(q.params[0])))
	case key == "\x00$p" && len(q.params) == 1:
		n := 0
		if flag := t.ansiFlag(q.params[0]); flag != nil {
			n = onOff(*flag)
		}
		t.reply(fmt.Sprintf("\x1b[%d;%d$y", max(q.params[0], 0), n))
	}
}

func onOff(on bool) int {
	if on {
		return 1
	}
	return 2
}

// kept are the private modes that Redraw restores; they affect only the terminal itself.
var kept = []int{
	1,                // cursor keys
	5,                // reverse screen
	12,               // blinking cursor
	1000, 1002, 1003, // mouse
	1004, // focus
	1006, // mouse reports beyond column 223
	1007, // the wheel moves the cursor on the alternate screen
	2004, // bracketed paste
}

// The modes by which the alternate screen is entered.
const (
	altScreen       = 47
	altScreenClear  = 1047
	altScreenCursor = 1049
)

func (t *Terminal) private(mode int, on bool) {
	switch mode {
	case 6:
		t.at.origin, t.at.wrap = on, false
		t.moveTo(0, 0)
	case 7:
		t.noWrap = !on
		t.at.wrap = t.at.wrap && on
	case 25:
		t.invis = !on
	case 66:
		t.keypad = on
	case altScreen, altScreenClear, altScreenCursor:
		t.alternate(mode, on)
		return
	case 1048:
		if on {
			t.on.saved = t.at
		} else {
			t.restore()
		}
	case 2026: // synchronized output: relevant only to viewers
	default:
		if !slices.Contains(kept, mode) {
			return
		}
		mouse := func(m int, _ bool) bool { return m == 1000 || m == 1002 || m == 1003 }
		if on && mouse(mode, on) { // one at a time
			maps.DeleteFunc(t.modes, mouse)
		}
		if t.modes[mode] = on; !on {
			delete(t.modes, mode)
		}
	}
	t.showMode(mode, on)
}

func (t *Terminal) showMode(mode int, on bool) {
	final := 'l'
	if on {
		final = 'h'
	}
	t.show = fmt.Appendf(t.show, "\x1b[?%d%c", mode, final)
}

// setting returns the answer to a query of a private mode: 1 set, 2 reset, 0 unknown.
func (t *Terminal) setting(mode int) int {
	switch mode {
	case 6:
		return onOff(t.at.origin)
	case 7:
		return onOff(!t.noWrap)
	case 25:
		return onOff(!t.invis)
	case 66:
		return onOff(t.keypad)
	case altScreen, altScreenClear, altScreenCursor:
		return onOff(t.alt != 0)
	case 2026:
		return 2
	}
	if slices.Contains(kept, mode) {
		return onOff(t.modes[mode])
	}
	return 0
}

// alternate enters or leaves the alternate screen, which is always clear at the beginning.
func (t *Terminal) alternate(mode int, on bool) {
	switch {
	case on && t.alt == 0:
		if t.entered = t.at; mode == altScreenCursor {
			t.main.saved = t.at
		}
		t.alt, t.on = mode, &t.other
		t.other.clear(t.size.Rows, t.at.pen.bg)
		t.at.wrap = false
		t.showMode(mode, true)
		t.show = append(t.show, "\x1b[2J"...)
	case !on && t.alt != 0:
		mode = t.alt
		t.alt, t.on = 0, &t.main
		if mode == altScreenCursor {
			t.restore()
		}
		t.showMode(mode, false)
	}
}

func (t *Terminal) softReset() {
	t.insert, t.noWrap, t.invis, t.keypad = false, false, false, false
	delete(t.modes, 1)
	t.at.origin, t.at.pen, t.at.charsets, t.at.shift = false, style{}, [2]byte{}, 0
	t.top, t.end = 0, t.size.Rows
	t.on.saved = cursor{}
}

// moveTo moves the cursor; in origin mode rows count from the top margin.
func (t *Terminal) moveTo(x, y int) {
	first, end := 0, t.size.Rows
	if t.at.origin {
		first, end = t.top, t.end
	}
	t.at.x, t.at.y, t.at.wrap = max(0, min(x, t.size.Columns-1)), max(first, min(first+y, end-1)), false
}

// move moves the cursor, and keeps it within the margins if it is there.
func (t *Terminal) move(dx, dy int) {
	at := &t.at
	first, end := 0, t.size.Rows
	if at.y >= t.top && dy < 0 {
		first = t.top
	}
	if at.y < t.end && dy > 0 {
		end = t.end
	}
	at.x, at.y, at.wrap = max(0, min(at.x+dx, t.size.Columns-1)), max(first, min(at.y+dy, end-1)), false
}

func (t *Terminal) plainControl(q *sequence) {
	at, bg := &t.at, t.at.pen.bg
	rows, columns := t.size.Rows, t.size.Columns
	switch q.final {
	case '@': // ICH
		t.line().insert(at.x, t.count(q, columns), columns, bg)
		at.wrap = false
	case 'A', 'F':
		t.move(0, -t.count(q, rows))
	case 'B', 'E', 'e':
		t.move(0, t.count(q, rows))
	case 'C', 'a':
		t.move(t.count(q, columns), 0)
	case 'D':
		t.move(-t.count(q, columns), 0)
	case 'G', '`':
		at.x, at.wrap = q.number(columns)-1, false
	case 'H', 'f':
		t.moveTo(q.param(1, 1)-1, q.param(0, 1)-1)
	case 'd':
		t.moveTo(at.x, q.param(0, 1)-1)
	case 'I':
		t.tab(t.count(q, columns))
	case 'Z':
		t.tab(-t.count(q, columns))
	case 'J':
		if !t.eraseScreen(q.param(0, 0)) {
			return
		}
	case 'K':
		if !t.eraseLine(q.param(0, 0)) {
			return
		}
	case 'X': // ECH
		t.line().erase(at.x, at.x+t.count(q, columns), columns, bg)
		at.wrap = false
	case 'L', 'M': // IL, DL
		n := t.count(q, rows)
		t.pass(q)
		if at.y < t.top || at.y >= t.end {
			return
		}
		if q.final == 'L' {
			n = -n
		}
		t.on.scroll(at.y, t.end, n, bg, nil)
		at.x, at.wrap = 0, false
		t.show = append(t.show, '\r') // which some terminals imply
		return
	case 'P': // DCH
		t.line().remove(at.x, t.count(q, columns), columns, bg)
		at.wrap = false
	case 'S':
		t.scrollUp(t.top, t.count(q, rows))
	case 'T':
		if len(q.params) > 1 { // highlight mouse tracking, which waits for an answer
			return
		}
		t.on.scroll(t.top, t.end, -t.count(q, rows), bg, nil)
	case 'b': // REP
		t.repeat(q.number(columns))
		return
	case 'g': // TBC
		switch q.param(0, 0) {
		case 0:
			t.tabs[at.x] = false
		case 3:
			clear(t.tabs)
		default:
			return
		}
	case 'h', 'l':
		t.ansiMode(q)
		return
	case 'm':
		at.pen.apply(q)
	case 'r':
		t.margins(q)
		return
	case 's':
		if len(q.params) > 0 { // left and right margins, elsewhere
			return
		}
		t.on.saved = *at
	case 'u':
		t.restore()
	default:
		t.question(q)
		return
	}
	if q.final == 'E' || q.final == 'F' {
		at.x = 0
	}
	t.pass(q)
}

// count returns the number in a sequence, at most most, and passes the sequence on.
func (t *Terminal) count(q *sequence, most int) int {
	n := q.number(most)
	q.params, q.colon = append(q.params[:0], n), append(q.colon[:0], false)
	return n
}

// repeat prints the last character again. Terminals disagree on the details of REP, so the text passes instead.
func (t *Terminal) repeat(n int) {
	if t.last == 0 {
		return
	}
	for range n {
		t.print(t.last)
	}
}

func (t *Terminal) ansiMode(q *sequence) {
	for _, m := range q.params {
		if flag := t.ansiFlag(m); flag != nil {
			*flag = q.final == 'h'
			t.show = fmt.Appendf(t.show, "\x1b[%d%c", m, q.final)
		}
	}
}

// ansiFlag returns what a mode without a prefix sets, or nil.
func (t *Terminal) ansiFlag(mode int) *bool { return map[int]*bool{4: &t.insert, 20: &t.newline}[mode] }

func (t *Terminal) margins(q *sequence) {
	top, end := q.param(0, 1)-1, min(q.param(1, t.size.Rows), t.size.Rows)
	if len(q.params) > 2 || end-top < 2 {
		return
	}
	t.top, t.end = top, end
	t.moveTo(0, 0)
	t.show = fmt.Appendf(t.show, "\x1b[%d;%dr", top+1, end)
}

// eraseScreen executes ED, and reports whether it passes.
func (t *Terminal) eraseScreen(what int) bool {
	first, end := 0, t.size.Rows
	switch what {
	case 0:
		t.eraseLine(0)
		first = t.at.y + 1
	case 1:
		t.eraseLine(1)
		end = t.at.y
	case 2:
	case 3: // erases only the model's history
		t.history.clear()
		return false
	default:
		return false
	}
	blank(t.on.lines[min(first, end):end], t.at.pen.bg)
	t.at.wrap = false
	return true
}

// eraseLine executes EL.
func (t *Terminal) eraseLine(what int) bool {
	from, to := 0, t.size.Columns
	switch what {
	case 0:
		from = t.at.x
	case 1:
		to = t.at.x + 1
	case 2:
	default:
		return false
	}
	t.line().erase(from, to, t.size.Columns, t.at.pen.bg)
	t.at.wrap = false
	return true
}

const maxTitle = 200

func (t *Terminal) command(data []byte) {
	t.marks = 0
	number, text, _ := bytes.Cut(data, []byte(";"))
	switch string(number) {
	case "0", "2":
		t.title = plainText(string(text))
		t.show = append(t.show, "\x1b]2;"+t.title+"\x1b\\"...)
	case "8":
		if params, url, ok := strings.Cut(string(text), ";"); ok && harmlessLink(params, url) {
			t.show = append(t.show, "\x1b]8;"+params+";"+url+"\x1b\\"...)
		}
	case "10":
		if string(text) == "?" && t.Foreground != "" {
			t.reply("\x1b]10;" + t.Foreground + "\x1b\\")
		}
	case "11":
		if string(text) == "?" && t.Background != "" {
			t.reply("\x1b]11;" + t.Background + "\x1b\\")
		}
	}
}

func plainText(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == maxTitle {
			break
		}
		if r != utf8.RuneError && unicode.IsPrint(r) && (r < 0x80 || printable(r)) {
			b.WriteRune(r)
			n++
		}
	}
	return b.String()
}

// harmlessLink reports whether a hyperlink may pass: one to the web, or the end of one.
func harmlessLink(params, url string) bool {
	if url == "" {
		return params == ""
	}
	for _, c := range []byte(params) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("=:._-", rune(c)) {
			return false
		}
	}
	for _, c := range []byte(url) {
		if c <= 0x20 || c >= 0x7f {
			return false
		}
	}
	return strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")
}
