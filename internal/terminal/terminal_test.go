package terminal

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// difference returns the difference of two terminals, or "".
func difference(a, b *Terminal) string {
	var d []string
	note := func(what string, x, y any) {
		if x, y := fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y); x != y {
			d = append(d, fmt.Sprintf("%s: %s, not %s", what, y, x))
		}
	}
	screens := func(name string, x, y *screen) {
		for i := range x.lines {
			if !slices.Equal(filled(x.lines[i], a.size), filled(y.lines[i], b.size)) {
				d = append(d, fmt.Sprintf("%s line %d: %+v\nnot %+v", name, i, y.lines[i], x.lines[i]))
			}
		}
		note(name+" saved cursor", x.saved, y.saved)
	}
	screens("main", &a.main, &b.main)
	if note("alternate screen", a.alt, b.alt); a.alt != 0 {
		screens("alternate", &a.other, &b.other)
	}
	note("cursor", a.at, b.at)
	note("margins", []int{a.top, a.end}, []int{b.top, b.end})
	note("modes", []any{a.insert, a.newline, a.noWrap, a.invis, a.keypad, a.shape},
		[]any{b.insert, b.newline, b.noWrap, b.invis, b.keypad, b.shape})
	note("private modes", slices.Sorted(maps.Keys(a.modes)), slices.Sorted(maps.Keys(b.modes)))
	note("title", a.title, b.title)
	if !slices.Equal(a.tabs, b.tabs) {
		d = append(d, "tab stops")
	}
	return strings.Join(d, "\n")
}

// filled returns all cells of a line.
func filled(l line, s Size) []cell {
	l.cells = slices.Clone(l.cells)
	l.extend(s.Columns)
	return l.cells
}

func write(s Size, text string) *Terminal {
	t := New(s)
	t.Write([]byte(text))
	return t
}

// screenText returns the text on the screen, without trailing blanks.
func screenText(t *Terminal) string {
	var lines []string
	for _, l := range t.on.lines {
		lines = append(lines, l.plain())
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

var small = Size{Rows: 5, Columns: 10}

func TestScreen(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"text", "hello\r\nworld", "hello\nworld"},
		{"wraps after the last column", "0123456789", "0123456789"},
		{"wraps with the next character", "0123456789x", "0123456789\nx"},
		{"return after the last column", "0123456789\rx", "x123456789"},
		{"no wrap", "\x1b[?7l0123456789xy", "012345678y"},
		{"scrolls", "1\r\n2\r\n3\r\n4\r\n5\r\n6", "2\n3\n4\n5\n6"},
		{"scrolls in a region", "1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\nx", "1\n3\n4\nx\n5"},
		{"scrolls down", "1\r\n2\r\n3\x1b[1;1H\x1bMx", "x\n1\n2\n3"},
		{"inserts lines", "1\r\n2\r\n3\x1b[2;1H\x1b[Lx", "1\nx\n2\n3"},
		{"deletes lines", "1\r\n2\r\n3\x1b[2;1H\x1b[M", "1\n3"},
		{"inserts characters", "abcdef\x1b[3G\x1b[2@xy", "abxycdef"},
		{"deletes characters", "abcdef\x1b[3G\x1b[2P", "abef"},
		{"erases characters", "abcdef\x1b[3G\x1b[2X", "ab  ef"},
		{"insert mode", "abc\r\x1b[4hx\x1b[4ly", "xybc"},
		{"erases to the end", "abc\r\ndef\x1b[1;2H\x1b[J", "a"},
		{"erases to the beginning, not further", "abc\r\ndef\x1b[2;2H\x1b[1J", "\n  f"},
		{"erases a line", "abc\r\ndef\x1b[1;2H\x1b[2K", "\ndef"},
		{"next line", "abc\x1bEd", "abc\nd"},
		{"tabs", "a\tb", "a       b"},
		{"tab stops", "\x1b[3g\x1b[4G\x1bH\r\tb", "   b"},
		{"back tab", "123456789\x1b[Zx", "12345678x"},
		{"backspace", "abc\b\bx", "axc"},
		{"line drawing", "\x1b(0lqk\x1b(Bq", "┌─┐q"},
		{"line drawing by shift", "\x1b)0\x0eq\x0fq", "─q"},
		{"repeats", "ab\x1b[3b", "abbbb"},
		{"origin", "\x1b[2;4r\x1b[?6h\x1b[1;1Hx\x1b[9;1Hy", "\nx\n\ny"},
		{"saves the cursor", "ab\x1b7cd\x1b8x", "abxd"},
		{"saves the cursor, the other way", "ab\x1b[scd\x1b[ux", "abxd"},
		{"wide characters", "日本語", "日本語"},
		{"wide characters do not fit", "123456789日", "123456789\n日"},
		{"half of a wide character is overwritten", "日本\x1b[2Gx", " x本"},
		{"combining", "e\u0301a", "e\u0301a"},
		{"combining after the last column", "012345678e\u0301", "012345678e\u0301"},
		{"no end of combining", "e" + strings.Repeat("\u0301", 1000), "e" + strings.Repeat("\u0301", maxMarks)},
		{"cut off characters", "a\xe2\x82b\xffc\xc3", "a�b�c"},
		{"an escape in a character", "\xe2\x1b[31mx", "�x"},
		{"alternate screen", "main\x1b[?1049h\x1b[Halt", "alt"},
		{"back from the alternate screen", "main\x1b[?1049h\x1b[Halt\x1b[?1049l!", "main!"},
		{"a sequence is given up", "a\x1b[31\x18b\x1b[3\x1b[mc", "abc"},
		{"controls within a sequence", "ab\x1b[3\bDx", "xb"},
		{"strings show nothing", "a\x1bPq#1\x1b\\b\x1b_Gf=1;xx\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e\x1b]52;c;eA==\x07f",
			"abcdef"},
		{"a string that goes on too long", "a\x1b]0;" + strings.Repeat("x", 10_000) + "\x07b", "ab"},
		{"too many parameters", "a\x1b[" + strings.Repeat("1;", 100) + "mb", "ab"},
		{"large numbers", "a\x1b[99999999999999999999Cb", "a        b"},
		{"reset", "abc\x1bcx", "x"},
		{"no direction", "a\u202eb\u2066c", "abc"},
		{"no eight-bit controls", "a\u009b31mb\xc2", "a31mb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := screenText(write(small, tt.in)); got != tt.want {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
			split := New(small)
			for i := range len(tt.in) {
				split.Write([]byte{tt.in[i]})
			}
			if d := difference(write(small, tt.in), split); d != "" {
				t.Errorf("byte by byte: %s", d)
			}
		})
	}
}

// TestWhatPasses: only harmless output reaches viewers.
func TestWhatPasses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"text", "a\r\nb\x1b[1;31mc\x1b[38:2::1:2:3md", "a\r\nb\x1b[1;31mc\x1b[38:2::1:2:3md"},
		{"a bell", "\a", "\a"},
		{"who are you", "\x05", ""},
		{"flow control", "\x11\x13", ""},
		{"device attributes", "\x1b[c\x1b[>c\x1b[=c\x1b[0c\x1b[>q", ""},
		{"status", "\x1b[5n\x1b[6n\x1b[?6n\x1b[?15n", ""},
		{"asking for modes", "\x1b[?1$p\x1b[4$p", ""},
		{"asking for settings", "\x1bP$qm\x1b\\\x1bP+q544e\x1b\\", ""},
		{"window operations", "\x1b[3;0;0t\x1b[8;1;1t\x1b[21t\x1b[20t\x1b[18t\x1b[22;0t", ""},
		{"reading the screen", "\x1b[1;1;1;1;1;1*y\x1b[x", ""},
		{"printing", "\x1b[i\x1b[5i\x1b[?5i\x1b[4i", ""},
		{"the clipboard", "\x1b]52;c;cm0gLXJmIC8K\x07\x1b]52;c;?\x1b\\", ""},
		{"pictures and files", "\x1b]1337;File=name=eA==:eA==\x07\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\\x1bPq#0\x1b\\", ""},
		{"notifications", "\x1b]9;hello\x07\x1b]777;notify;a;b\x07\x1b]99;;x\x1b\\", ""},
		{"keys that type", "\x1bP0;1|17/0d\x1b\\\x1b[\"p", ""},
		{"palettes", "\x1b]4;1;#ffffff\x07\x1b]10;#000000\x07\x1b]11;#000000\x07\x1b]104\x07\x1b]P0000000", ""},
		{"asking for colors", "\x1b]10;?\x07\x1b]11;?\x07\x1b]4;1;?\x07", ""},
		{"a directory of the machine", "\x1b]7;file:///etc\x07", ""},
		{"highlight tracking, which waits", "\x1b[1;2;3;4;5T", ""},
		{"keyboard protocols", "\x1b[>1u\x1b[=1u\x1b[<u\x1b[?u\x1b[>4;2m\x1b[>4;2n", ""},
		{"wide and narrow", "\x1b[?3h\x1b[?40h\x1b[?95h", ""},
		{"margins left and right", "\x1b[?69h\x1b[2;5s", ""},
		{"other modes", "\x1b[?2031h\x1b[?9001h\x1b[?1005h\x1b[?1015h\x1b[?2048h\x1b[?8452h\x1b[2h\x1b[12h", ""},
		{"the modes of programs", "\x1b[?1h\x1b[?1002;1006h\x1b[?2004h\x1b[?25l",
			"\x1b[?1h\x1b[?1002h\x1b[?1006h\x1b[?2004h\x1b[?25l"},
		{"only what is known of several", "\x1b[?25;2031;1h", "\x1b[?25h\x1b[?1h"},
		{"my scrollback stays", "\x1b[3J", ""},
		{"a title", "\x1b]0;vim \x01main.go\x07", "\x1b]2;vim main.go\x1b\\"},
		{"a title that ends early", "\x1b]0;a\x1b[31m\x07", "\x1b[31m\a"},
		{"a title with tricks", "\x1b]2;a\u202eb\u009cc\xffd\x1b\\", "\x1b]2;abcd\x1b\\"},
		{"a long title", "\x1b]2;" + strings.Repeat("é", 1000) + "\x07",
			"\x1b]2;" + strings.Repeat("é", maxTitle) + "\x1b\\"},
		{"a link", "\x1b]8;id=1;https://example.com/a?b#c\x07x\x1b]8;;\x07",
			"\x1b]8;id=1;https://example.com/a?b#c\x1b\\x\x1b]8;;\x1b\\"},
		{"a link to a file", "\x1b]8;;file:///etc/passwd\x07x", "x"},
		{"a link to a program", "\x1b]8;;vscode://x\x07x\x1b]8;;javascript:1\x07\x1b]8;;https://a b\x07", "x"},
		{"a reset is drawn", "\x1bc", string(New(small).Redraw(small, true))},
		{"repeating is written out", "a\x1b[2b", "aaa"},
		{"numbers are bounded", "\x1b[60000A\x1b[60000L\x1b[70000;70000H", "\x1b[5A\x1b[5L\r\x1b[65535;65535H"},
		{"eight-bit controls", "\u009b5n\u009d52;c;x\u009c", "5n52;c;x"},
		{"nothing within a parameter", "\x1b[1?5n\x1b[?1<h\x1b[ !p", ""},
		{"other character sets", "\x1b%G\x1b(K\x1b*0\x1b%@\x1b#3\x1b#6", ""},
		{"locking", "\x1b`\x1bb\x1bZ\x1b6\x1bl\x1bn", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			show, _ := New(small).Write([]byte(tt.in))
			if string(show) != tt.want {
				t.Errorf("%q passes\nwant %q", show, tt.want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"who are you", "\x1b[c\x1b[0c", "\x1b[?62;22c\x1b[?62;22c"},
		{"and really", "\x1b[>c\x1b[>0q", "\x1b[>1;1;0c\x1bP>|cove\x1b\\"},
		{"how are you", "\x1b[5n", "\x1b[0n"},
		{"where is the cursor", "ab\r\nc\x1b[6n", "\x1b[2;2R"},
		{"where is it, in origin mode", "\x1b[2;4r\x1b[?6h\x1b[2;3H\x1b[?6n", "\x1b[?2;3R"},
		{"is it set", "\x1b[?2004h\x1b[?2004$p\x1b[?1$p\x1b[?9999$p\x1b[?2026$p",
			"\x1b[?2004;1$y\x1b[?1;2$y\x1b[?9999;0$y\x1b[?2026;2$y"},
		{"insert mode", "\x1b[4h\x1b[4$p\x1b[20$p\x1b[2$p", "\x1b[4;1$y\x1b[20;2$y\x1b[2;0$y"},
		{"how large", "\x1b[18t", "\x1b[8;5;10t"},
		{"which title", "\x1b]2;\r\nrm -rf /\r\n\x07\x1b[21t\x1b[20t", ""},
		{"which keyboard", "\x1b[?u", ""},
		{"which clipboard", "\x1b]52;c;?\x07", ""},
		{"which colors, when nobody knows", "\x1b]10;?\x07", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, answer := New(small).Write([]byte(tt.in)); string(answer) != tt.want {
				t.Errorf("%q\nwant %q", answer, tt.want)
			}
		})
	}
	known := New(small)
	known.Foreground, known.Background = "rgb:ffff/ffff/ffff", "rgb:0000/0000/0000"
	if _, answer := known.Write([]byte("\x1b]10;?\x07\x1b]11;?\x1b\\")); string(
		answer) != "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\x1b\\" {
		t.Errorf("colors: %q", answer)
	}
}

// pieces are the elements of the random streams.
var pieces = []string{"a", "bc ", "é", "日", "e\u0301", "\r\n", "\n", "\r", "\b", "\t", "\x1b7", "\x1b8", "\x1bM",
	"\x1bD", "\x1bE", "\x1bH", "\x1b(0", "\x1b(B", "\x1b)0", "\x0e", "\x0f",
	"\x1b[H", "\x1b[3;4H", "\x1b[2;4r", "\x1b[r", "\x1b[?6h", "\x1b[?6l", "\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[?7h",
	"\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[2K",
	"\x1b[2L", "\x1b[M", "\x1b[3@", "\x1b[2P", "\x1b[4X", "\x1b[S", "\x1b[2T", "\x1b[5b", "\x1b[A", "\x1b[2B", "\x1b[3C",
	"\x1b[D", "\x1b[9G", "\x1b[31m", "\x1b[1;44m", "\x1b[m",
	"\x1b[38;5;200m", "\x1b[48;2;1;2;3m", "\x1b[4:3;58;5;9m", "\x1b[7;9m", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h",
	"\x1b[?47l", "\x1b[?1047h", "\x1b[?1047l", "\x1b[?25l", "\x1b[?25h",
	"\x1b[?1h", "\x1b[?2004h", "\x1b[?1003h", "\x1b[?1000h", "\x1b=", "\x1b>", "\x1b[5 q", "\x1b]0;title\x07", "\x1b[3g",
	"\x1b[20h", "\x1b[20l", "\x1b[!p", "\x1bc", "\x1b#8", "\x1b[s", "\x1b[u",
	"0123456789", "\x1b[Z", "\x1b[I", "😀", "\x1b[?1048h", "\x1b[?1048l"}

func random(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// shrink searches for a shorter stream with the same fault.
func shrink(in []string, faulty func(string) bool) []string {
	for again := true; again; {
		again = false
		for i := range in {
			if less := slices.Delete(slices.Clone(in), i, i+1); faulty(strings.Join(less, "")) {
				in, again = less, true
				break
			}
		}
	}
	return in
}

// TestTheSameState: a redrawn terminal and a continuously attached one are in the state of the model.
func TestTheSameState(t *testing.T) {
	drawn := func(in string) string {
		model := write(small, in)
		return difference(model, write(small, string(model.Redraw(small, true))))
	}
	looked := func(in string) string {
		model, viewer := New(small), New(small)
		show, _ := model.Write([]byte(in))
		viewer.Write(show)
		return difference(model, viewer)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		var in []string
		for range 1 + r.IntN(30) {
			in = append(in, pieces[r.IntN(len(pieces))])
		}
		for name, check := range map[string]func(string) string{"drawn": drawn, "looked at": looked} {
			if check(strings.Join(in, "")) != "" {
				in = shrink(in, func(s string) bool { return check(s) != "" })
				t.Fatalf("stream %d, %s: %q\n%s\n%q", i, name, in, check(strings.Join(in, "")),
					write(small, strings.Join(in, "")).Redraw(small, true))
			}
		}
	}
}

// TestResize: the state is consistent for any sizes.
func TestResize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000 {
		model := New(Size{1 + r.IntN(8), 1 + r.IntN(12)})
		for range 4 {
			model.Write([]byte(random(r, 10)))
			model.Resize(Size{r.IntN(9), r.IntN(12)})
			check(t, model)
		}
		other := Size{1 + r.IntN(8), 2 + r.IntN(12)}
		check(t, write(other, string(model.Redraw(other, true))))
	}
	model := write(small, "1\r\n2\r\n3\r\n4\r\n5")
	model.Resize(Size{3, 10})
	if got := screenText(model); got != "3\n4\n5" {
		t.Errorf("%q", got)
	}
	if got := model.Text(); got != "1\n2\n3\n4\n5\n" {
		t.Errorf("%q", got)
	}
}

// check checks the model's invariants.
func check(t *testing.T, m *Terminal) {
	t.Helper()
	s := m.size
	if m.at.x < 0 || m.at.x >= s.Columns || m.at.y < 0 || m.at.y >= s.Rows || m.top < 0 || m.end > s.Rows ||
		m.top >= m.end || len(m.tabs) != s.Columns {
		t.Fatalf("%+v at %+v, margins %d %d", s, m.at, m.top, m.end)
	}
	for _, c := range []*screen{&m.main, &m.other} {
		if len(c.lines) != s.Rows {
			t.Fatalf("%d lines of %d", len(c.lines), s.Rows)
		}
		for _, line := range c.lines {
			l := line.cells
			if len(l) > s.Columns {
				t.Fatalf("%d columns of %d", len(l), s.Columns)
			}
			for x := range l {
				if l[x].wide && (x+1 == len(l) || !l[x+1].half) || l[x].half && (x == 0 || !l[x-1].wide) {
					t.Fatalf("half a character at %d of %+v", x, l)
				}
			}
		}
	}
}

func TestHistory(t *testing.T) {
	model := New(small)
	for i := range 10_000 {
		fmt.Fprintf(writer{model}, "\x1b[3%dmline %d\x1b[m\r\n", i%8, i)
	}
	if n := len(model.history.lines); n != maxHistoryLines {
		t.Errorf("%d lines", n)
	}
	if lines := strings.Split(strings.TrimSpace(model.Text()), "\n"); lines[len(lines)-1] != "line 9999" ||
		lines[0] != fmt.Sprint("line ", 10_000-maxHistoryLines-4) {
		t.Errorf("from %q to %q of %d", lines[0], lines[len(lines)-1], len(lines))
	}
	if h := string(model.History(2)); !strings.HasPrefix(h, "\x1b[0;32mline 9994\x1b[0m\x1b[0m\r\n\x1b[0;33mline 9995") {
		t.Errorf("%q", h)
	}
	for range 10_000 {
		fmt.Fprintf(writer{model}, "%s\r\n", strings.Repeat("\x1b[38;2;1;2;3mx\x1b[38;2;3;2;1mx", 5))
	}
	if model.history.bytes > maxHistoryBytes {
		t.Errorf("%d bytes", model.history.bytes)
	}
	model.Write([]byte("\x1b[3J"))
	if len(model.history.lines) != 0 {
		t.Error("it cannot be forgotten")
	}
	model.Write([]byte("\x1b[?1049h1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7"))
	if len(model.history.lines) != 0 {
		t.Error("the alternate screen has a history")
	}
}

type writer struct{ t *Terminal }

func (w writer) Write(p []byte) (int, error) { w.t.Write(p); return len(p), nil }

// TestHostileAmounts: output and answers are proportional to the input.
func TestHostileAmounts(t *testing.T) {
	for name, piece := range map[string]string{"reset": "\x1bc", "erasing": "\x1b[41;2J", "scrolling": "\x1b[600S",
		"inserting": "\x1b[@", "repeating": "日\x1b[600b", "asking": "\x1b[c", "marks": "\u0301",
		"an endless title": "\x1b]0;x"} {
		t.Run(name, func(t *testing.T) {
			model := New(MaxSize)
			in := bytes.Repeat([]byte(piece), (32<<10)/len(piece))
			show, answer := model.Write(in)
			if len(show) > maxShow+(256<<10) || len(answer) > 8*len(in) {
				t.Errorf("%d bytes pass, %d are answered", len(show), len(answer))
			}
		})
	}
}

// FuzzTerminal: the model is consistent for any input, and its output and redraw lead to the same state.
func FuzzTerminal(f *testing.F) {
	for _, p := range pieces {
		f.Add([]byte("a"+p+"b"), uint8(3))
	}
	f.Add([]byte("\x1b]8;;https://example.com\x07x\x1bP0;1|17/0d\x1b\\\xf0\x9f\x98"), uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		model, viewer := New(small), New(small)
		for len(in) > 0 {
			n := min(len(in), int(cut)+1)
			show, _ := model.Write(in[:n])
			viewer.Write(show)
			in = in[n:]
			check(t, model)
		}
		if d := difference(model, viewer); d != "" {
			t.Fatalf("looked at: %s", d)
		}
		if d := difference(model, write(small, string(model.Redraw(small, true)))); d != "" {
			t.Fatalf("drawn: %s", d)
		}
		model.Resize(Size{3, 7})
		check(t, model)
		model.Text()
	})
}
