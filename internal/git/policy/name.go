package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is how long the name of a ref may be. Servers keep refs in files, and
// 255 bytes is what those may have; whoever needs more wants something else.
const maxName = 255

// CheckName says what is wrong with the name of a ref as others have written it,
// or nothing: what git check-ref-format refuses, and what cannot be shown.
func CheckName(name string) (why string) {
	switch {
	case name == "":
		return "the name is empty"
	case len(name) > maxName:
		return "the name is too long"
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	case strings.Contains(name, ".."), strings.Contains(name, "@{"), strings.Contains(name, "//"), name == "@",
		strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.HasSuffix(name, "."):
		return "git has no such names"
	}
	for _, r := range name {
		if !unicode.IsPrint(r) || strings.ContainsRune(" ~^:?*[\\", r) {
			return "the name has characters that names of refs do not have"
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || hasSuffixFold(part, ".lock") {
			return "git has no such names"
		}
	}
	return ""
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// Where refs are that policy has a word for.
const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
)

// never are refs that no policy opens: git and forges give them a meaning of
// their own, other than that of a name for a commit.
var never = []string{"refs/replace/", "refs/pull/", "refs/merge-requests/", "refs/changes/", "refs/for/", "refs/drafts/",
	"refs/keep-around/", "refs/environments/", "refs/pipelines/", "refs/meta/", "refs/cache-automerge/", "refs/prefetch/", "refs/bisect/",
	"refs/remotes/", "refs/worktree/", "refs/rewritten/", "refs/original/", "refs/stash"}

func isNever(ref string) bool {
	for _, n := range never {
		if strings.HasPrefix(ref+"/", strings.TrimSuffix(n, "/")+"/") {
			return true
		}
	}
	return !strings.HasPrefix(ref, "refs/") || strings.Count(ref, "/") < 2
}

// Refs is a set of refs: one by its name, or with "/**" at its end all below.
// "feature/x" is short for "refs/heads/feature/x".
type Refs string

// WellKnownRefs is written as it is: a branch of that name is
// refs/heads/well-known.
const WellKnownRefs Refs = "well-known"

// ParseRefs reads a set of refs. Errors say what is wrong with it.
func ParseRefs(s string) (Refs, string) {
	if s == string(WellKnownRefs) {
		return WellKnownRefs, ""
	}
	name, below := strings.CutSuffix(s, "/**")
	if !strings.HasPrefix(name, "refs/") && name != "refs" {
		name = heads + name
	}
	if s == "**" {
		name, below = strings.TrimSuffix(heads, "/"), true
	}
	switch {
	case strings.Contains(name, "*"):
		return "", "* stands at the end only, as in feature/**"
	case strings.Count(name, "/") < 1 || !below && strings.Count(name, "/") < 2:
		return "", "it says not which of the refs it means, as refs/heads/main does"
	}
	if why := CheckName(name); why != "" {
		return "", why
	}
	if below {
		name += "/**"
	}
	return Refs(name), ""
}

// Has reports whether a ref is one of them.
func (r Refs) Has(ref string) bool {
	if prefix, below := strings.CutSuffix(string(r), "**"); below {
		return len(ref) > len(prefix) && strings.HasPrefix(ref, prefix)
	}
	return ref == string(r)
}

// wide reports whether r is more than one ref.
func (r Refs) wide() bool { return strings.HasSuffix(string(r), "/**") }

func has(sets []Refs, ref string) bool {
	for _, r := range sets {
		if r.Has(ref) {
			return true
		}
	}
	return false
}

// wellKnown are branches that everybody builds upon.
var wellKnown = []Refs{heads + "main", heads + "master", heads + "develop", heads + "trunk", heads + "release/**", heads + "releases/**", heads + "stable/**"}

// WellKnown reports whether a ref is one that everybody builds upon: the branch
// that HEAD leads to, or one with a name such as main or release/1.
func WellKnown(ref, head string) bool {
	return ref == head && strings.HasPrefix(ref, heads) || has(wellKnown, ref)
}

// String is the form that ParseRefs reads, as short as it can be.
func (r Refs) String() string {
	if s := strings.TrimPrefix(string(r), heads); s != string(WellKnownRefs) {
		return s
	}
	return string(r)
}
