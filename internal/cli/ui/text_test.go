package ui

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "héllo ✓", "héllo ✓"},
		{"CSI", "\x1b[2J", `\x1b[2J`},
		{"OSC 8", "\x1b]8;;http://x\x07", `\x1b]8;;http://x\x07`},
		{"C1 CSI", "\u009b2J", `\x9b2J`},
		{"carriage return", "safe\rbad", `safe\x0dbad`},
		{"newline", "a\nb", `a\nb`},
		{"tab", "a\tb", "a b"},
		{"bidi", "a\u202eb", `a\u202eb`},
		{"zero width", "a\u200bb", `a\u200bb`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"invalid UTF-8", "a\xffb", `a\xffb`},
		{"replacement character itself", "\uFFFD", "\uFFFD"},
		{"DEL", "\x7f", `\x7f`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Printable(c.in); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31mb\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("%q came through in %q", r, got)
			}
		}
	})
}

func TestPlainJSON(t *testing.T) {
	text := "plain \u00e9 \u009b2J \u202e \x7f \U000e0041 \x1b[2J \"\\ \n"
	b, err := json.MarshalIndent(map[string]string{"output": text}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := PlainJSON(string(b))
	for _, r := range got {
		if Obeyed(r) {
			t.Errorf("%q came through in %q", r, got)
		}
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(got), &back); err != nil || back["output"] != text {
		t.Errorf("it reads back as %q, %v", back["output"], err)
	}
	if !strings.Contains(got, "\u00e9") {
		t.Errorf("a letter was escaped: %q", got)
	}
}

func TestColour(t *testing.T) {
	none := func(string) string { return "" }
	if Colorful(nil, none) {
		t.Error("no file has colours")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if Colorful(w, none) {
		t.Error("a pipe has colours")
	}
}
