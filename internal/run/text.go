package run

import "strings"

// keptTail is how much of the end of an agent's error output is kept in memory, in bytes.
const keptTail = 4 << 10

// tail is the end of a text.
type tail struct{ s string }

func (t *tail) add(s string) {
	t.s += s
	if len(t.s) > keptTail {
		t.s = t.s[len(t.s)-keptTail:]
	}
}

func (t *tail) text() string { return strings.ToValidUTF8(t.s, "\uFFFD") }
