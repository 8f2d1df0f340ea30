package terminal

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxTitle bounds a title, in characters.
const maxTitle = 200

// command executes an operating system command (OSC).
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

// plainText returns the printable text of a title.
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
