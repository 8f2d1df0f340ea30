package policy

import (
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
)

const maxPath = 16 << 10 // bounds a path, in bytes

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

// appendDecoded decodes a path once, with slash in place of encoded slashes, and reports whether there was one.
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
	if c <= '9' {
		return c - '0'
	}
	return upper(c) - 'A' + 10
}

const encodedSlash = 0 // represents %2F in a decoded path; no other encoding decodes to NUL

func segmentEnd(path []byte, at int, split bool) int {
	for at < len(path) && path[at] != '/' && !(split && path[at] == encodedSlash) {
		at++
	}
	return at
}

const maxQuery = 64 << 10 // bounds a query, in bytes

// URL is an absolute http or https URL with canonical parts.
type URL struct {
	Scheme string // "http" or "https"
	Host   Host
	Port   uint16
	Path   string // from CanonicalPath
	Query  string // with its "?", or empty; not judged
}

// ParseURL parses an absolute URL of a request line: scheme http, https, ws or wss (on the wire http and https), no
// user, no fragment, and host, port and path as ParseHost, ParsePort and CanonicalPath do. Errors: InvalidArgument.
func ParseURL(raw string) (URL, error) {
	bad := func(why string) (URL, error) {
		return URL{}, cove.Errorf(cove.InvalidArgument, "%s is not a URL for the gateway: %s", quote(raw), why)
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return bad("it has no scheme and host")
	}
	u := URL{Scheme: "https"}
	port := uint16(443)
	switch strings.ToLower(scheme) {
	case "https", "wss":
	case "http", "ws":
		u.Scheme, port = "http", 80
	default:
		return bad("its scheme is not http or https")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return bad("it names a user")
	}
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path, u.Query = path[:i], path[i:]
	}
	if strings.Contains(path+u.Query, "#") {
		return bad("it has a fragment")
	}
	if len(u.Query) > maxQuery {
		return bad("its query is longer than 64 KiB")
	}
	if strings.ContainsFunc(u.Query, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return bad("its query has bytes that must be encoded")
	}
	var err error
	if u.Host, u.Port, err = ParseAuthority(authority, port); err != nil {
		return URL{}, err
	}
	u.Path, err = CanonicalPath(path)
	return u, err
}
