package redact

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A pattern is one spelling of a value: its characters in sequence, each in one of several forms.
type (
	pattern   []character
	character struct {
		forms []form
		wraps bool // line ends may precede it
	}
	// form is a sequence of byte pairs of which either byte matches.
	form [][2]byte
)

func oneOf(forms ...form) character { return character{forms: forms} }

func patterns(value string) []pattern {
	all := []pattern{escaped(value), hexed(value, false), hexed(value, true), wide(value, "\x00"),
		wide(value, "\x00\x00\x00")}
	for _, format := range uniform {
		all = append(all, uniformly(value, format))
	}
	for alignment := range 3 {
		all = append(all, base64ed(value, alignment))
	}
	for alignment := range 5 {
		all = append(all, base32ed(value, alignment))
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
		p = append(p, oneOf(forms(value[:size], r)...))
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
func forms(raw string, r rune) []form {
	percent := ""
	for i := range len(raw) {
		percent += fmt.Sprintf("%%%02x", raw[i])
	}
	unicode := fmt.Sprintf(`\u%04x`, r)
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		unicode = fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	c := []form{exactly(raw), anyCase(percent), anyCase(unicode)}
	if isLetterOrDigit(r) {
		return c
	}
	escapes := slices.Clone(shortEscapes[r])
	if r < utf8.RuneSelf {
		for _, format := range []string{"&#%d;", "&#x%x;", `\x%02x`, `\u{%x}`} {
			escapes = append(escapes, fmt.Sprintf(format, r))
		}
	}
	for _, e := range escapes {
		c = append(c, anyCase(e), anyCase(again.Replace(e)))
	}
	return append(c, anyCase(again.Replace(percent)), anyCase(again.Replace(unicode)))
}

// again escapes an escaped character once more, as where JSON or HTML is quoted in a text of the same kind.
var again = strings.NewReplacer("%", "%25", "+", "%2b", `\`, `\\`, `"`, `\"`, "&", "&amp;")

// uniform are the escapes of encoders that escape letters and digits as well, and so every character of a value.
var uniform = []string{"&#%d;", "&#x%x;", `\x%02x`, `\u{%x}`, "%%25%02x"}

// uniformly returns the pattern of the value with every character in one format; %02x is of bytes.
func uniformly(value, format string) pattern {
	var p pattern
	if !utf8.ValidString(value) || strings.Contains(format, "%02x") {
		for _, b := range []byte(value) {
			p = append(p, oneOf(anyCase(fmt.Sprintf(format, b))))
		}
		return p
	}
	for _, r := range value {
		p = append(p, oneOf(anyCase(fmt.Sprintf(format, r))))
	}
	return p
}

func isLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func exactly(s string) (pairs form) {
	for i := range len(s) {
		pairs = append(pairs, [2]byte{s[i], s[i]})
	}
	return pairs
}

// anyCase returns pairs that match letters in either case: %2b and %2B.
func anyCase(s string) (pairs form) {
	upper := strings.ToUpper(s)
	for i := range len(s) {
		pairs = append(pairs, [2]byte{s[i], upper[i]})
	}
	return pairs
}

// hexed returns the pattern of the value in hexadecimal digits; apart is with a space or a colon between bytes.
func hexed(value string, apart bool) pattern {
	var p pattern
	for i, pair := range anyCase(hex.EncodeToString([]byte(value))) {
		if apart && i > 0 && i%2 == 0 {
			p = append(p, oneOf(form{{' ', ':'}}))
		}
		p = append(p, oneOf(form{pair}))
	}
	return p
}

// wide returns the pattern of UTF-16 or UTF-32 in either byte order, zeroes between the bytes, for characters of
// Latin-1.
func wide(value, zeroes string) pattern {
	var p pattern
	for i := range len(value) {
		if i > 0 {
			p = append(p, oneOf(exactly(zeroes)))
		}
		p = append(p, oneOf(exactly(value[i:i+1])))
	}
	return p
}

// base64ed returns the base64 characters, of 6 bits, that depend on the value alone after so many bytes (modulo 3).
func base64ed(value string, before int) pattern {
	text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
	var p pattern
	for i, r := range text[(8*before+5)/6 : 8*(before+len(value))/6] {
		c := character{wraps: i >= beginning} // before that, a line of anything else would have to wait for the next one
		switch r {
		case '+': // in the URL alphabet it is -; both may be escaped in a URL or JSON
			c.forms = append(forms("+", '+'), exactly("-"))
		case '/':
			c.forms = append(forms("/", '/'), exactly("_"))
		default:
			c.forms = []form{exactly(string(r))}
		}
		p = append(p, c)
	}
	return p
}

// base32ed returns the base32 characters, of 5 bits, that depend on the value alone after so many bytes (modulo 5).
func base32ed(value string, before int) pattern {
	upper := base32.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", before) + value))
	upper = upper[(8*before+4)/5 : 8*(before+len(value))/5]
	lower := strings.ToLower(upper)
	p := pattern{oneOf(exactly(upper[:beginning]), exactly(lower[:beginning]))}
	for _, pair := range anyCase(lower[beginning:]) {
		p = append(p, oneOf(form{pair}))
	}
	return p
}

// compiler builds a Set. The edges of a state are a list, whose latest is edges[latest[state]], with the one before it.
type compiler struct {
	set    *Set
	edges  []edge
	before []int32 // by edge: that of the same state before it, or -1
	latest []int32 // by state, or -1
}

const root = -2 // the initial state, whose edges are in Set.start

func (c *compiler) add(p pattern) {
	from := int32(root)
	for i, ch := range p {
		to := int32(found)
		if i < len(p)-1 {
			to = c.state()
		}
		if ch.wraps {
			c.connect(from, from, [2]byte{'\r', '\n'})
		}
		own := int32(len(c.latest)) // the first state within this character
		for _, form := range ch.forms {
			at := from
			for j, pair := range form {
				next := to
				if j < len(form)-1 {
					if shared := c.shared(at, pair, own); shared >= 0 {
						at = shared
						continue
					}
					next = c.state()
				}
				c.connect(at, next, pair)
				at = next
			}
		}
		from = to
	}
}

// shared returns the state that pair leads to in another form of the same character, whose states begin with own, or a
// negative number.
func (c *compiler) shared(at int32, pair [2]byte, own int32) int32 {
	if at == root {
		return -1
	}
	for i := c.latest[at]; i >= 0; i = c.before[i] {
		if e := c.edges[i]; e.to >= own && e.a == pair[0] && e.b == pair[1] {
			return e.to
		}
	}
	return -1
}

func (c *compiler) state() int32 {
	c.latest = append(c.latest, -1)
	return int32(len(c.latest) - 1)
}

func (c *compiler) connect(from, to int32, pair [2]byte) {
	if from != root {
		c.edges = append(c.edges, edge{pair[0], pair[1], to})
		c.before = append(c.before, c.latest[from])
		c.latest[from] = int32(len(c.edges) - 1)
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
	c.set.first, c.set.edges = make([]int32, 0, len(c.latest)+1), make([]edge, 0, len(c.edges))
	for _, i := range c.latest {
		c.set.first = append(c.set.first, int32(len(c.set.edges)))
		for ; i >= 0; i = c.before[i] {
			c.set.edges = append(c.set.edges, c.edges[i])
		}
	}
	c.set.first = append(c.set.first, int32(len(c.set.edges)))
	return c.set
}

const beginning = MinLength // bytes that the filter hashes; no spelling is shorter than the shortest value

// admit adds the beginnings of p that start with prefix to the filter.
func (c *compiler) admit(p pattern, prefix []byte) {
	for _, form := range p[0].forms {
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
func spell(prefix []byte, form form) [][]byte {
	if len(form) == 0 || len(prefix) == beginning {
		return [][]byte{prefix}
	}
	all := spell(append(prefix[:len(prefix):len(prefix)], form[0][0]), form[1:])
	if form[0][0] != form[0][1] {
		all = append(all, spell(append(prefix[:len(prefix):len(prefix)], form[0][1]), form[1:])...)
	}
	return all
}
