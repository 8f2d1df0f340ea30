package policy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the name of a ref. Servers store refs as files, whose names have at most 255 bytes.
const maxName = 255

// CheckName returns an objection to the name of a ref in hostile input, or "": names that git check-ref-format refuses,
// and unprintable ones.
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

// Prefixes of refs that policies distinguish.
const (
	heads = "refs/heads/"
	tags  = "refs/tags/"
)

// never are refs that no policy opens: git and forges use them for other purposes than names of commits.
var never = []string{"refs/replace/", "refs/pull/", "refs/merge-requests/", "refs/changes/", "refs/for/",
	"refs/drafts/",
	"refs/keep-around/", "refs/environments/", "refs/pipelines/", "refs/meta/", "refs/cache-automerge/", "refs/prefetch/",
	"refs/bisect/",
	"refs/remotes/", "refs/worktree/", "refs/rewritten/", "refs/original/", "refs/stash"}

func isNever(ref string) bool {
	for _, n := range never {
		if strings.HasPrefix(ref+"/", strings.TrimSuffix(n, "/")+"/") {
			return true
		}
	}
	return !strings.HasPrefix(ref, "refs/") || strings.Count(ref, "/") < 2
}

// Refs is a set of refs: one by its name, or with a final "/**" all refs below. "feature/x" is short for
// "refs/heads/feature/x".
type Refs string

// WellKnownRefs is a literal set; a branch of that name is refs/heads/well-known.
const WellKnownRefs Refs = "well-known"

// ParseRefs parses a set of refs. It returns an objection, or "".
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

// Has reports whether the set contains a ref.
func (r Refs) Has(ref string) bool {
	if prefix, below := strings.CutSuffix(string(r), "**"); below {
		return len(ref) > len(prefix) && strings.HasPrefix(ref, prefix)
	}
	return ref == string(r)
}

// wide reports whether the set may contain several refs.
func (r Refs) wide() bool { return strings.HasSuffix(string(r), "/**") }

func has(sets []Refs, ref string) bool {
	return slices.ContainsFunc(sets, func(r Refs) bool { return r.Has(ref) })
}

// wellKnown are branches that others build upon.
var wellKnown = []Refs{heads + "main", heads + "master", heads + "develop", heads + "trunk", heads + "release/**",
	heads + "releases/**", heads + "stable/**"}

// WellKnown reports whether others build upon a ref: the branch of HEAD, or one with a name such as main or release/1.
func WellKnown(ref, head string) bool {
	return ref == head && strings.HasPrefix(ref, heads) || has(wellKnown, ref)
}

// guarded are branches that are deployed, or that others are told to build upon, beside the well-known ones.
var guarded = []Refs{heads + "production", heads + "prod", heads + "staging", heads + "hotfix/**", heads + "gh-pages"}

// Guarded reports whether a push to a ref reaches others at once: to a well-known branch, or one that is deployed, such
// as production or gh-pages.
func Guarded(ref string) bool { return has(wellKnown, ref) || has(guarded, ref) }

// GuardedBranch is Guarded for the name of a branch.
func GuardedBranch(name string) bool { return Guarded(heads + name) }

// String returns the shortest form that ParseRefs reads.
func (r Refs) String() string {
	if s := strings.TrimPrefix(string(r), heads); s != string(WellKnownRefs) {
		return s
	}
	return string(r)
}
