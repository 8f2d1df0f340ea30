package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A pattern is one spelling of a value: its characters in sequence, each in one of several forms.
type (
	pattern []character
	// character holds the encodings of one character, as sequences of byte pairs of which either byte matches.
	character [][][2]byte
)

func patterns(value string) []pattern {
	all := []pattern{escaped(value), hexed(value), wide(value)}
	for alignment := range 3 {
		all = append(all, base64ed(value, alignment))
	}
	return all
}

// escaped returns the pattern of the value with each character plain or escaped.
func escaped(value string) pattern {
	var p pattern
	for value != "" {
		r, size := utf8.DecodeRuneInString(value)
		if r == utf8.RuneError && size <= 1 {
			r = rune(value[0]) // not UTF-8: Latin-1, as a browser would read it
		}
		p = append(p, forms(value[:size], r))
		value = value[size:]
	}
	return p
}

// shortEscapes are the short escapes of JSON and HTML, and the space of form encoding.
var shortEscapes = map[rune][]string{
	'"': {`\"`, "&quot;"}, '\\': {`\\`}, '/': {`\/`}, '\b': {`\b`}, '\f': {`\f`}, '\n': {`\n`}, '\r': {`\r`}, '\t': {`\t`},
	'&': {"&amp;"}, '<': {"&lt;"}, '>': {"&gt;"}, '\'': {"&apos;"}, ' ': {"+"},
}

// forms returns the encodings of the character r, whose bytes are raw.
func forms(raw string, r rune) character {
	percent := ""
	for i := range len(raw) {
		percent += fmt.Sprintf("%%%02x", raw[i])
	}
	unicode := fmt.Sprintf(`\u%04x`, r)
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		unicode = fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	c := character{exactly(raw), anyCase(percent), anyCase(unicode)}
	for _, s := range shortEscapes[r] {
		c = append(c, anyCase(s))
	}
	if r < utf8.RuneSelf && !isLetterOrDigit(r) {
		c = append(c, anyCase(fmt.Sprintf("&#%d;", r)), anyCase(fmt.Sprintf("&#x%x;", r)))
	}
	return c
}

func isLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func exactly(s string) (pairs [][2]byte) {
	for i := range len(s) {
		pairs = append(pairs, [2]byte{s[i], s[i]})
	}
	return pairs
}

// anyCase returns pairs that match letters in either case: %2b and %2B.
func anyCase(s string) (pairs [][2]byte) {
	upper := strings.ToUpper(s)
	for i := range len(s) {
		pairs = append(pairs, [2]byte{s[i], upper[i]})
	}
	return pairs
}

func hexed(value string) pattern {
	var p pattern
	for _, pair := range anyCase(hex.EncodeToString([]byte(value))) {
		p = append(p, character{{pair}})
	}
	return p
}

// wide returns the pattern of UTF-16 in either byte order, a zero between the bytes, for characters of Latin-1.
func wide(value string) pattern {
	var p pattern
	for i := range len(value) {
		if i > 0 {
			p = append(p, character{exactly("\x00")})
		}
		p = append(p, character{exactly(value[i : i+1])})
	}
	return p
}

// base64ed returns the base64 characters, of 6 bits, that depend on the value alone after so many bytes (modulo 3).
func base64ed(value string, before int) pattern {
	text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
	var p pattern
	for _, r := range text[(8*before+5)/6 : 8*(before+len(value))/6] {
		switch r {
		case '+': // in the URL alphabet it is -; both may be escaped in a URL or JSON
			p = append(p, append(forms("+", '+'), exactly("-")))
		case '/':
			p = append(p, append(forms("/", '/'), exactly("_")))
		default:
			p = append(p, character{exactly(string(r))})
		}
	}
	return p
}

type compiler struct {
	set    *Set
	states [][]edge
}

const root = -2 // the initial state, whose edges are in Set.start

func (c *compiler) add(p pattern) {
	from := int32(root)
	for i, ch := range p {
		to := int32(found)
		if i < len(p)-1 {
			to = c.state()
		}
		for _, form := range ch {
			at := from
			for j, pair := range form {
				next := to
				if j < len(form)-1 {
					next = c.state()
				}
				c.connect(at, next, pair)
				at = next
			}
		}
		from = to
	}
}

func (c *compiler) state() int32 {
	c.states = append(c.states, nil)
	return int32(len(c.states) - 1)
}

func (c *compiler) connect(from, to int32, pair [2]byte) {
	if from != root {
		c.states[from] = append(c.states[from], edge{pair[0], pair[1], to})
		return
	}
	start := &c.set.start
	start[pair[0]] = append(start[pair[0]], to)
	if pair[1] != pair[0] {
		start[pair[1]] = append(start[pair[1]], to)
	}
}

// finish lays out the edges contiguously.
func (c *compiler) finish() *Set {
	for _, edges := range c.states {
		c.set.first = append(c.set.first, int32(len(c.set.edges)))
		c.set.edges = append(c.set.edges, edges...)
	}
	c.set.first = append(c.set.first, int32(len(c.set.edges)))
	return c.set
}

const beginning = MinLength // bytes that the filter hashes; no spelling is shorter than the shortest value

// admit adds the beginnings of p that start with prefix to the filter.
func (c *compiler) admit(p pattern, prefix []byte) {
	for _, form := range p[0] {
		for _, begun := range spell(prefix, form) {
			if len(begun) == beginning {
				h := hash(begun)
				c.set.filter[h/64] |= 1 << (h % 64)
				continue
			}
			c.admit(p[1:], begun)
		}
	}
}

// spell appends every encoding of a form to prefix, up to a whole beginning.
func spell(prefix []byte, form [][2]byte) [][]byte {
	if len(form) == 0 || len(prefix) == beginning {
		return [][]byte{prefix}
	}
	all := spell(append(prefix[:len(prefix):len(prefix)], form[0][0]), form[1:])
	if form[0][0] != form[0][1] {
		all = append(all, spell(append(prefix[:len(prefix):len(prefix)], form[0][1]), form[1:])...)
	}
	return all
}
