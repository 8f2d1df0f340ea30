package policy

import (
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
)

// maxQuery bounds a query, in bytes.
const maxQuery = 64 << 10

// URL is an absolute http or https URL with canonical parts.
type URL struct {
	Scheme string // "http" or "https"
	Host   Host
	Port   uint16
	Path   string // from CanonicalPath
	Query  string // with its "?", or empty; not judged
}

// ParseURL parses an absolute URL of a request line: scheme http, https, ws or wss (the latter are http and https on
// the wire), no user, no fragment, and host, port and path as ParseHost, ParsePort and CanonicalPath accept them.
// Errors: InvalidArgument.
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
	for i := 0; i < len(u.Query); i++ {
		if c := u.Query[i]; c <= ' ' || c == 0x7f || c >= utf8.RuneSelf {
			return bad("its query has bytes that must be encoded")
		}
	}
	var err error
	if u.Host, u.Port, err = ParseAuthority(authority, port); err != nil {
		return URL{}, err
	}
	u.Path, err = CanonicalPath(path)
	return u, err
}
