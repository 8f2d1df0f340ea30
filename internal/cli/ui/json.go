package ui

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// PrintJSON writes one indented object to standard output.
func (t *Terminal) PrintJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return t.Print(PlainJSON(string(b)) + "\n")
}

// PrintJSONLine writes one object on a line of standard output.
func (t *Terminal) PrintJSONLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Print(PlainJSON(string(b)) + "\n")
}

// PlainJSON escapes what encoding/json leaves and a terminal may obey: C1 control characters and those that reorder
// text. They are within strings, where the escaped form means the same.
func PlainJSON(text string) string {
	if !strings.ContainsFunc(text, Obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !Obeyed(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Obeyed are the unsafe characters that JSON has in strings only.
func Obeyed(r rune) bool { return r != '\n' && unsafe(r) }
