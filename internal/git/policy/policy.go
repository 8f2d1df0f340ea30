// Package policy owns the permissions of a sandbox on one repository over git: which refs it sees, and which updates of
// refs it may send (invariants G1, G2).
//
// # Reading
//
// A sandbox sees its own branches, the well-known ones, tags, and further refs that its policy names. Other refs do not
// exist for it: neither in lists nor by object id.
//
// # Pushing
//
// An update is judged in two steps: Admit judges its command, and Judge also the content of the pack (Facts). Judge
// never allows what Admit refuses. A push is atomic: if one update is refused, none is forwarded, so that a server
// never has to undo anything. A refused update stays refused, whatever accompanies it.
//
// The zero Policy sees well-known refs and pushes nothing. Removing a permission never adds reach.
package policy

import (
	"cmp"
	"slices"
	"strings"
)

// Action is the decision on an update, in the order of reach.
type Action int

const (
	Deny Action = iota
	Ask         // hold the update until it is approved or refused
	Allow
)

func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// Policy holds the permissions of a sandbox on one repository.
type Policy struct {
	ID string // place of its definition: "policy.yaml:12"

	Fetch []Refs // visible refs beside its own branches; nil: Usual
	Push  []Refs // its own branches, and other refs that it may update; a set of many never contains a well-known branch
	// Asked are refs of Push whose updates are held until they are approved.
	Asked []Refs
	// Protected are refs that it never updates, even if Push contains them.
	Protected []Refs

	Update Action // decision on fast-forward updates and new branches
	Force  Action // decision on updates that abandon commits
	Delete Action
	Tags   Action // decision on new tags outside Push
	// Options decides on push options, whose meaning the server defines.
	Options Action

	// Known decides on added lines with a private key, or a token of a form that Search knows.
	Known Action

	MaxPack    int64 // bytes; 0: DefaultMaxPack
	MaxUpdates int   // updates of a push; 0: DefaultMaxUpdates
	// MaxDeleted bounds the files, and the refs, that a push deletes without approval; 0: DefaultMaxDeleted or, if that
	// is more, a tenth of the files.
	MaxDeleted int

	Block     []Files // files that must not change; nil: Restricted
	Warn      []Files
	Secrets   []Secret
	Downloads bool // permits downloads of large files (LFS); uploads have no ref to judge
}

// Default limits of a push.
const (
	DefaultMaxPack    = 512 << 20 // bytes
	DefaultMaxUpdates = 256
	DefaultMaxDeleted = 100
)

// PackLimit returns the limit of a pack, in bytes.
func (p *Policy) PackLimit() int64 {
	if p.MaxPack > 0 {
		return p.MaxPack
	}
	return DefaultMaxPack
}

// UpdateLimit returns the limit of updates in a push.
func (p *Policy) UpdateLimit() int { return cmp.Or(p.MaxUpdates, DefaultMaxUpdates) }

// DeletionLimit returns how many of so many files, or refs, a push may delete without approval.
func (p *Policy) DeletionLimit(of int) int {
	return cmp.Or(p.MaxDeleted, max(DefaultMaxDeleted, of/10))
}

// Sees reports whether a ref is visible to the sandbox. head is the branch of the server's HEAD, if known.
func (p *Policy) Sees(ref, head string) bool {
	switch {
	case CheckName(ref) != "":
		return false
	case ref == "HEAD":
		return head != "" && p.Sees(head, head)
	case has(p.Push, ref) && !isNever(ref):
		return true
	case p.Fetch == nil:
		return sees(Usual, ref, head)
	}
	return sees(p.Fetch, ref, head)
}

// SeesTags reports whether all tags are visible.
func (p *Policy) SeesTags() bool {
	return p.Fetch == nil || slices.Contains(p.Fetch, Refs(tags+"**")) || slices.Contains(p.Push, Refs(tags+"**"))
}

func sees(sets []Refs, ref, head string) bool {
	return has(sets, ref) || slices.Contains(sets, WellKnownRefs) && WellKnown(ref, head)
}

// Usual are the refs visible by default.
var Usual = []Refs{WellKnownRefs, tags + "**"}

func (p *Policy) blocked() []Files {
	if p.Block == nil {
		return Restricted
	}
	return p.Block
}

// ReadOnly reports whether p allows no update at all.
func (p *Policy) ReadOnly() bool { return len(p.Push) == 0 && p.Tags == Deny }

// Files is a set of files by path: "*" matches within a directory, "**" any number of directories, and a pattern
// without "/" matches names at any depth.
type Files string

// ParseFiles parses a set of files. It returns an objection, or "".
func ParseFiles(s string) (Files, string) {
	switch {
	case s == "" || len(s) > maxName:
		return "", "a path has 1 to 255 bytes"
	case strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") || strings.Contains(s, "//"):
		return "", "a path begins and ends with a name, as in .github/workflows/**"
	case strings.Count(s, "*") > 8:
		return "", "it has too many *"
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "." || part == ".." {
			return "", "a path has no . and no .. in it"
		}
	}
	return Files(s), ""
}

// Has reports whether the set contains a path, ignoring case, as some file systems do.
func (f Files) Has(path string) bool {
	pattern := strings.ToLower(string(f))
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	return matchPath(strings.Split(pattern, "/"), strings.Split(strings.ToLower(path), "/"))
}

// below reports whether files of the set may lie below a path. Of a set at any depth, the path ends with its beginning.
func (f Files) below(path string) bool {
	pattern, parts := strings.Split(strings.ToLower(string(f)), "/"), strings.Split(strings.ToLower(path), "/")
	if pattern[0] != "**" {
		return begins(pattern, parts)
	}
	return slices.ContainsFunc(suffixes(parts), func(rest []string) bool { return begins(pattern[1:], rest) })
}

// begins reports whether a path is the beginning of one that a pattern may match.
func begins(pattern, parts []string) bool {
	if len(parts) >= len(pattern) {
		return false
	}
	for i, part := range parts {
		if !matchName(pattern[i], part) { // a "**" that may match anything is left to the path's content
			return false
		}
	}
	return true
}

func matchPath(pattern, path []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			if len(pattern) == 1 {
				return len(path) > 0
			}
			return slices.ContainsFunc(suffixes(path), func(rest []string) bool { return matchPath(pattern[1:], rest) })
		}
		if len(path) == 0 || !matchName(pattern[0], path[0]) {
			return false
		}
		pattern, path = pattern[1:], path[1:]
	}
	return len(path) == 0
}

func suffixes(path []string) (all [][]string) {
	for i := range path {
		all = append(all, path[i:])
	}
	return all
}

// matchName matches one name; * stands for any characters.
func matchName(pattern, name string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], more
	}
}

// Summary describes p's permissions in one line.
func (p *Policy) Summary() string {
	names := func(sets []Refs) string {
		var all []string
		for _, r := range sets {
			all = append(all, r.String())
		}
		return strings.Join(all, ", ")
	}
	see := p.Fetch
	if see == nil {
		see = Usual
	}
	said := "it sees " + names(slices.Concat(p.Push, see))
	if len(p.Push)+len(see) == 0 {
		said = "it sees nothing"
	}
	if len(p.Push) == 0 {
		return said + ", and pushes nothing"
	}
	return said + ", and pushes to " + names(p.Push)
}
