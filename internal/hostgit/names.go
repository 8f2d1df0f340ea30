package hostgit

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxRef = 250 // bytes; a ref is a path of files

// ValidRef reports whether a full name of a ref, such as refs/heads/main, is valid for git (git-check-ref-format) and
// unambiguous: no part begins with a hyphen, and no character is invisible.
func ValidRef(ref string) bool {
	if len(ref) > maxRef || !utf8.ValidString(ref) || !strings.HasPrefix(ref, "refs/") || strings.HasSuffix(ref, ".") {
		return false
	}
	if strings.Contains(ref, "..") || strings.Contains(ref, "@{") || strings.ContainsAny(ref, " ~^:?*[\\") {
		return false
	}
	for _, r := range ref {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	parts := strings.Split(ref, "/")
	for _, part := range parts {
		if part == "" || part == "@" || part[0] == '.' || part[0] == '-' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return len(parts) >= 3
}

// ValidBranch reports whether a branch may have this name, given without refs/heads/.
func ValidBranch(name string) bool {
	return name != "HEAD" && !strings.HasPrefix(name, "refs/") && ValidRef("refs/heads/"+name)
}

// ValidID reports whether s is the whole id of an object: 40 or 64 lower-case hexadecimal digits.
func ValidID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
