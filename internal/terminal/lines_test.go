package terminal

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func lines(text string) string {
	var l Lines
	return string(l.Write([]byte(text)))
}

// TestWhatLinesPass: what a program does to its own lines passes; what a terminal would answer, remember or obey does
// not.
func TestWhatLinesPass(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"text":           {"hello, wörld 日本\r\n\tx\a\b", "hello, wörld 日本\r\n\tx\a\b"},
		"a progress bar": {"10%\r\x1b[K20%\r\x1b[2K", "10%\r\x1b[0K20%\r\x1b[2K"},
		"colors": {"\x1b[31mred\x1b[m \x1b[1;38;5;9mx\x1b[38;2;1;2;3my",
			"\x1b[0;31mred\x1b[0m \x1b[0;1;91mx\x1b[0;1;38;2;1;2;3my"},
		"within a line":             {"ab\x1b[2D\x1b[3C\x1b[7G\x1b[4X\x1b[P", "ab\x1b[2D\x1b[3C\x1b[7G\x1b[4X\x1b[1P"},
		"back to its own lines":     {"a\nb\n\x1b[9A\x1b[Jc", "a\nb\n\x1b[2A\x1b[0Jc"},
		"and no further":            {"\x1b[Aa\x1b[3F", "a"},
		"down to where it has been": {"a\nb\n\x1b[2A\x1b[9B\x1b[B", "a\nb\n\x1b[2A\x1b[2B"},
		"several bars":              {"1\n2\n\x1b[2A1\n2\n\x1b[2A", "1\n2\n\x1b[2A1\n2\n\x1b[2A"},
		"the cursor is hidden":      {"\x1b[?25lx\x1b[?25h", "\x1b[?25lx\x1b[?25h"},
		"clipboard":                 {"a\x1b]52;c;cHduZWQ=\x07b\x1b]52;c;?\x1b\\c", "abc"},
		"title":                     {"a\x1b]0;T\x07b\x1b]2;T\x1b\\c\x1b[21tc", "abcc"},
		"link":                      {"\x1b]8;;https://example.com\x07x\x1b]8;;\x07", "x"},
		"queries":                   {"a\x1bP$qm\x1b\\\x05\x1b[c\x1b[5n\x1b[6n\x1b[>q\x1b[?1$p\x1bZ\x1b[x", "a"},
		"eight-bit controls":        {"a\u009b31m\u0085\u009d0;x\u009c\x9b5nb", "a31m0;x\uFFFD5nb"},
		"screens and modes": {"\x1b[?1049h\x1b[?1000h\x1b[?2004hx\x1b[4h\x1b[2J\x1b[3J\x1b[H\x1b[5;5Hy\x1bc\x1b[!p" +
			"\x1b#8", "xy"},
		"scrolling":              {"\x1b[2;3r\x1b[5S\x1b[L\x1bM\x1bD\x1b7\x1b8\x1b[s\x1b[ux", "x"},
		"character sets":         {"\x0e\x1b(0x\x0f", "x"},
		"order of text":          {"a\u202eb\u2066c\u2028", "abc"},
		"strings":                {"\x1b_Gf\x1b\\\x1b^p\x1b\\\x1bXs\x1b\\x\x1b]1337;File=:eA==\x07", "x"},
		"binary":                 {"\x00\x01\x7f\xff\xfex\v\f", "\uFFFD\uFFFDx\n\n"},
		"many marks":             {"a" + strings.Repeat("\u0301", 100), "a" + strings.Repeat("\u0301", maxMarks)},
		"an unfinished sequence": {"a\x1b[3", "a"},
		"an unfinished title":    {"a\x1b]0;t\nb", "a\nb"},
		"an unfinished string":   {"a\x1bPq\rx\nb\x1b_\nc", "a\nb\nc"},
		"a string without end":   {"a\x1b]" + strings.Repeat("x", maxString+8), "a" + strings.Repeat("x", 10)},
	} {
		if got := lines(c.in); got != c.want {
			t.Errorf("%s: %q became %q, want %q", name, c.in, got, c.want)
		}
		var l Lines
		var got []byte
		for i := range len(c.in) {
			got = append(got, l.Write([]byte{c.in[i]})...)
		}
		if string(got) != c.want {
			t.Errorf("%s, by bytes: %q, want %q", name, got, c.want)
		}
	}
}

// TestCalm: other text is as if the program had written nothing, and the program's goes on as before.
func TestCalm(t *testing.T) {
	var l Lines
	if got := string(l.Calm()) + string(l.Resume()); got != "" {
		t.Errorf("without a change: %q", got)
	}
	l.Write([]byte("a\nb\n\x1b[31;1m\x1b[?25l"))
	if got := string(l.Calm()); got != "\x1b[0m\x1b[?25h" {
		t.Errorf("calm: %q", got)
	}
	if got := string(l.Resume()); got != "\x1b[0;1;31m\x1b[?25l" {
		t.Errorf("resumed: %q", got)
	}
	if got := string(l.Write([]byte("\x1b[A"))); got != "\x1b[1A" {
		t.Errorf("a line back: %q", got)
	}
	l.Leave()
	if got := string(l.Write([]byte("\x1b[A"))); got != "" {
		t.Errorf("a line back over other text: %q", got)
	}
}

var passing = regexp.MustCompile(`\x1b\[(0[0-9;:]*m|[0-9]+[A-GKPXJ@]|\?25[hl])`)

// FuzzLines: for any output in any pieces only the sequences of passing come out, and what came out passes unchanged.
func FuzzLines(f *testing.F) {
	for _, p := range pieces {
		f.Add([]byte("a\n"+p+"b"), uint8(3))
	}
	f.Add([]byte("a\n\x1b[A\x1b]52;c;cHduZWQ=\x07\x1b[?25l\x1bP$qm\x1b\\\xf0\x9f\x98\x9b31m"), uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		var l Lines
		var out []byte
		for rest := in; len(rest) > 0; {
			n := min(len(rest), int(cut)+1)
			out = append(out, l.Write(rest[:n])...)
			rest = rest[n:]
		}
		if whole := lines(string(in)); whole != string(out) {
			t.Fatalf("in pieces %q, whole %q", out, whole)
		}
		if again := lines(string(out)); again != string(out) {
			t.Fatalf("%q passed as %q", out, again)
		}
		if !utf8.Valid(out) {
			t.Fatalf("%q is no text", out)
		}
		for _, r := range passing.ReplaceAllString(string(out), "") {
			if r < 0x20 && !strings.ContainsRune("\a\b\t\r\n", r) || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q has %q", out, r)
			}
		}
	})
}
