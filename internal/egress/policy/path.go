package policy

import (
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
)

// maxPath bounds a path, in bytes.
const maxPath = 16 << 10

// CanonicalPath parses the path of a request target as received, without its query, and returns the form that policy
// judges and the gateway forwards: the same bytes, with percent-encodings in upper case. An empty path is "/".
//
// Forms that servers are known to read in different ways are refused, not mended: empty segments, "." and ".." in any
// encoding, ";" and "\", encoded or not, encodings of letters and digits, encodings that decode to an encoding, and
// text that does not decode to UTF-8 without control characters. An encoded slash is kept, because package registries
// need it (@scope%2Fname); policy must allow it both as a slash and as a letter, here and in Decide. Errors:
// InvalidArgument.
func CanonicalPath(raw string) (string, error) {
	if raw == "" {
		return "/", nil
	}
	if why := objectionToPath(raw); why != "" {
		return "", cove.Errorf(cove.InvalidArgument, "the path %s is refused: %s", quote(raw), why)
	}
	return upperEncodings(raw), nil
}

func objectionToPath(raw string) string {
	switch {
	case len(raw) > maxPath:
		return "it is longer than 16 KiB"
	case raw[0] != '/':
		return "it does not begin with a slash"
	}
	for i := 0; i < len(raw); i++ {
		if why := objectionToByte(raw, i); why != "" {
			return why
		}
	}
	var buf [512]byte // fits most paths, without an allocation
	decoded, _ := appendDecoded(buf[:0], raw, '/')
	if !utf8.Valid(decoded) {
		return "it does not decode to UTF-8"
	}
	for at := 1; at <= len(decoded); {
		end := segmentEnd(decoded, at, false)
		switch segment := decoded[at:end]; {
		case len(segment) == 0 && end < len(decoded):
			return "it has an empty segment"
		case string(segment) == "." || string(segment) == "..":
			return "it has a dot segment"
		}
		at = end + 1
	}
	return ""
}

// objectionToByte returns an objection to one byte of a path, or to the byte that it encodes if it is "%".
func objectionToByte(raw string, i int) string {
	c := raw[i]
	switch {
	case c == '%':
		if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
			return "it has a % that encodes nothing"
		}
		return objectionToEncoded(unhex(raw[i+1])<<4|unhex(raw[i+2]), raw[i+3:])
	case c <= ' ' || c == 0x7f:
		return "it has a space or a control character"
	case c >= utf8.RuneSelf:
		return "it has bytes that must be encoded"
	case strings.IndexByte("\\;?#\"<>`{}", c) >= 0:
		return "it has a character that servers read in different ways"
	}
	return ""
}

// objectionToEncoded returns an objection to a percent-encoded byte; rest is the text after it.
func objectionToEncoded(c byte, rest string) string {
	switch {
	case c < ' ' || c == 0x7f:
		return "it encodes a control character"
	case c == '%' && len(rest) > 0 && (isHex(rest[0]) || rest[0] == '%'):
		return "it is encoded twice"
	case c == '\\' || c == ';':
		return "it has a character that servers read in different ways"
	case isLetterOrDigit(c|0x20) && c < utf8.RuneSelf, c == '.':
		return "it encodes a character that needs no encoding"
	}
	return ""
}

// appendDecoded decodes a path with well-formed encodings once, with slash in place of an encoded slash. It reports
// whether there was one.
func appendDecoded(buf []byte, path string, slash byte) (decoded []byte, slashes bool) {
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			i += 2
			if c == '/' {
				c, slashes = slash, true
			}
		}
		buf = append(buf, c)
	}
	return buf, slashes
}

func upperEncodings(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := []byte(s)
	for i := 0; i < len(b); i++ {
		if b[i] == '%' {
			b[i+1], b[i+2] = upper(b[i+1]), upper(b[i+2])
			i += 2
		}
	}
	return string(b)
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// encodedSlash represents %2F in a decoded path; no other encoding decodes to NUL.
const encodedSlash = 0

func segmentEnd(path []byte, at int, split bool) int {
	for at < len(path) && path[at] != '/' && !(split && path[at] == encodedSlash) {
		at++
	}
	return at
}
