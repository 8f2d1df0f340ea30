package repos

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Source is a parsed name of a repository: an address or a directory.
type Source struct {
	URL string // canonical, HTTPS; HTTP only for the machine owner's loopback
	Dir string // absolute and clean, as given
	Key string // key in the store, "github.com/owner/repo"; empty for a directory
}

const sourceHint = "a repository is OWNER/REPO, https://HOST/PATH, git@HOST:PATH, or a directory"

const (
	maxSource  = 2048 // bytes
	maxSegment = 200  // bytes of one path component; it becomes a directory's name
)

// shorthand matches OWNER/REPO of GitHub.
var shorthand = pattern.New(`^([A-Za-z0-9][A-Za-z0-9-]*)/([A-Za-z0-9._-]+)$`)

// scp matches ssh's HOST:PATH, with or without a user.
var scp = pattern.New(`^(?:[A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([^:].*)$`)

// ParseSource parses a source that a principal names. The machine's owner may use a directory, or a server on the
// loopback without TLS. Errors do not repeat text that may contain a password. Errors: InvalidArgument, Forbidden.
func ParseSource(who cove.Principal, s string) (Source, error) {
	bad := func(why string) (Source, error) {
		return Source{}, cove.Errorf(cove.InvalidArgument, "this is no repository: %s", why).WithHint(sourceHint)
	}
	switch {
	case s == "":
		return bad("it is empty")
	case len(s) > maxSource:
		return bad("it is too long")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return bad("it has invisible characters")
	case s[0] == '-':
		return bad("it begins with a hyphen")
	}
	if strings.HasPrefix(s, "/") {
		if !who.IsOwner() {
			return Source{}, cove.Errorf(cove.Forbidden, "a directory of this machine is for its owner").WithHint(
				"give an address instead: https://HOST/PATH")
		}
		return Source{Dir: filepath.Clean(s)}, nil
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		switch strings.ToLower(scheme) {
		case "https", "http", "ssh", "git+ssh", "ssh+git":
			return parseURL(who, strings.ToLower(scheme)+"://"+rest)
		}
		return bad("an address begins with https://")
	}
	if strings.Contains(s, "::") {
		return bad("it names a program")
	}
	if m := shorthand.FindStringSubmatch(s); m != nil {
		return parseURL(who, "https://github.com/"+m[1]+"/"+m[2])
	}
	if m := scp.FindStringSubmatch(s); m != nil {
		return parseURL(who, "ssh://"+m[1]+"/"+strings.TrimPrefix(m[2], "/"))
	}
	return bad("it is neither an address nor OWNER/REPO")
}

func parseURL(who cove.Principal, s string) (Source, error) {
	bad := func(why string) (Source, error) {
		return Source{}, cove.Errorf(cove.InvalidArgument, "this is no address of a repository: %s", why).WithHint(sourceHint)
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("it cannot be read")
	}
	if _, secret := u.User.Password(); secret {
		return Source{}, cove.Errorf(cove.InvalidArgument, "an address has no password in it").
			WithHint("credentials stay on the host, and the gateway sets them: see docs/credentials.md")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#") || u.Opaque != "" {
		return bad("it has more than a path")
	}
	ssh := strings.Contains(u.Scheme, "ssh")
	host, err := policy.ParseHost(u.Hostname())
	if err != nil {
		return Source{}, err
	}
	port := map[bool]uint16{false: 443, true: 80}[u.Scheme == "http"]
	if u.Port() != "" && !ssh { // a port of ssh is irrelevant to HTTPS
		if port, err = policy.ParsePort(u.Port()); err != nil {
			return Source{}, err
		}
	}
	secure := u.Scheme != "http"
	if addr, ok := host.Addr(); !secure && !(who.IsOwner() && (host.Name() == "localhost" || ok && addr.IsLoopback())) {
		return bad("an address begins with https://")
	}
	path, err := cleanPath(u.EscapedPath())
	if err != nil {
		return Source{}, err
	}
	github := host.Name() == "github.com" && secure && port == 443
	if github && len(path) != 2 {
		return bad("GitHub has OWNER/REPO")
	}
	return canonical(host, port, secure, path, github), nil
}

// cleanPath splits a path into components that can be directories' names, without ".git" at the end.
func cleanPath(escaped string) ([]string, error) {
	parts := strings.Split(strings.Trim(escaped, "/"), "/")
	for i, part := range parts {
		decoded, err := url.PathUnescape(part)
		bare := withoutGit(decoded)
		if err != nil || bare == "" || bare == "." || bare == ".." || withoutGit(bare) != bare || decoded[0] == '-' ||
			decoded[0] == '~' ||
			strings.ContainsAny(decoded, "/\\:?*\"<>|") || strings.ContainsFunc(decoded, func(r rune) bool {
			return !unicode.IsPrint(r) || r == unicode.ReplacementChar
		}) {
			return nil, cove.Errorf(cove.InvalidArgument,
				"this is no address of a repository: a part of its path cannot be").WithHint(sourceHint)
		}
		parts[i] = escape(decoded)
		if len(parts[i]) > maxSegment {
			return nil, cove.Errorf(cove.InvalidArgument,
				"this is no address of a repository: a part of its path is too long").WithHint(sourceHint)
		}
	}
	// A repository inside another's ".git" would share its place in the store.
	for i, part := range parts {
		if withoutGit(part) != part && i < len(parts)-1 {
			return nil, cove.Errorf(cove.InvalidArgument, "this is no address of a repository: %q is in the middle of it",
				part).WithHint(sourceHint)
		}
	}
	return parts, nil
}

// withoutGit removes a final ".git", in any case of letters.
func withoutGit(name string) string {
	if bare := name[:max(0, len(name)-len(".git"))]; strings.EqualFold(name[len(bare):], ".git") {
		return bare
	}
	return name
}

// escape writes a path component without characters that are special to a shell, a terminal or a file system.
func escape(part string) string {
	var b strings.Builder
	for _, c := range []byte(part) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._~+-@,=", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// canonical returns the source at a place. Addresses that differ only in ".git" are one repository, and GitHub ignores
// the case of letters.
func canonical(host policy.Host, port uint16, secure bool, path []string, github bool) Source {
	last := len(path) - 1
	name := withoutGit(path[last])
	if github {
		path[last] = name + ".git"
	}
	authority := host.String()
	if a, ok := host.Addr(); ok && a.Is6() {
		authority = "[" + authority + "]"
	}
	scheme, usual := "https://", uint16(443)
	if !secure {
		scheme, usual = "http://", 80
	}
	if port != usual {
		authority += ":" + strconv.Itoa(int(port))
	}
	src := Source{URL: scheme + authority + "/" + strings.Join(path, "/")}
	key := strings.Join(append(append([]string{authority}, path[:last]...), name), "/")
	if github {
		key = strings.ToLower(key)
	}
	if !secure {
		key = "http." + key
	}
	src.Key = key
	return src
}

// keyOfDirectory returns the store's key of a directory's repository. No host begins with a dot.
func keyOfDirectory(resolved string) string {
	sum := sha256.Sum256([]byte(resolved))
	name := filepath.Base(strings.TrimSuffix(strings.TrimSuffix(resolved, "/.git"), ".git"))
	return ".local/" + plainName(name) + "-" + hex.EncodeToString(sum[:8])
}

// plainName keeps letters, digits, hyphens and underscores.
func plainName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_') {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 64)]
}
