// Package policy owns what a sandbox may do with one repository over git: which
// refs it sees, and which updates of refs it may send (invariants G1, G2).
//
// # Reading
//
// A sandbox sees its own branches, the well-known ones, tags, and what else its
// policy names. What it does not see is not there: not in lists, not by object
// id.
//
// # Pushing
//
// An update is judged in two steps: Admit by what its command says, and Judge by
// what a pack turned out to have (Facts), too. Judge never allows what Admit
// refuses. One push is one thing: where an update of it is refused, nothing of
// it goes on, so that a server never has to undo anything, and what is refused
// stays refused whatever comes with it.
//
// The zero Policy sees what is well known and pushes nothing. To take something
// away from what a Policy allows never adds reach.
package policy

import (
	"regexp"
	"slices"
	"strings"
)

// Action is what becomes of an update. The order is that of reach.
type Action int

const (
	Deny Action = iota
	Ask         // hold it until somebody with a say has answered
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

// Policy is what a sandbox may do with one repository.
type Policy struct {
	ID string // where it is written: "policy.yaml:12"

	Fetch []Refs // what it sees beside its own branches; nil: Usual
	Push  []Refs // its own branches, and what else it may update. A set of many never has a well-known branch in it
	// Protected are refs that it never updates, whatever Push says.
	Protected []Refs

	Update Action // what becomes of updates that are in order
	Force  Action // of those that leave commits behind
	Delete Action
	Tags   Action // of new tags that Push does not name
	// Options says whether options of a push are passed on. They mean to a
	// server what it wants them to mean.
	Options Action

	MaxPack   int64   // bytes; 0: DefaultMaxPack
	Block     []Files // that must not change; nil: Restricted
	Warn      []Files
	Secrets   []Secret
	Downloads bool // of large files (LFS); uploads have no ref that could be judged
}

// DefaultMaxPack is how large a pack may be where nothing is said, in bytes.
const DefaultMaxPack = 512 << 20

// PackLimit is how large a pack may be, in bytes.
func (p *Policy) PackLimit() int64 {
	if p.MaxPack > 0 {
		return p.MaxPack
	}
	return DefaultMaxPack
}

// Sees reports whether a ref is there for the sandbox. head is the branch that
// the server's HEAD leads to, if that is known.
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

// SeesTags reports whether all tags are there.
func (p *Policy) SeesTags() bool {
	return p.Fetch == nil || slices.Contains(p.Fetch, Refs(tags+"**")) || slices.Contains(p.Push, Refs(tags+"**"))
}

func sees(sets []Refs, ref, head string) bool {
	return has(sets, ref) || slices.Contains(sets, WellKnownRefs) && WellKnown(ref, head)
}

// Usual is what a sandbox sees where nothing is said.
var Usual = []Refs{WellKnownRefs, tags + "**"}

func (p *Policy) blocked() []Files {
	if p.Block == nil {
		return Restricted
	}
	return p.Block
}

// ReadOnly reports whether p allows no update at all.
func (p *Policy) ReadOnly() bool { return len(p.Push) == 0 && p.Tags == Deny }

// Secret is what must not be in a line that a push adds.
type Secret struct {
	Name    string
	Pattern *regexp.Regexp
}

// Files is a set of files by their path: "*" is within a directory, "**" any
// number of them, and a pattern without "/" is about a name anywhere.
type Files string

// ParseFiles reads a set of files. It says what is wrong with it.
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

// Has reports whether a path is one of them, in any case of letters: some file
// systems know but one.
func (f Files) Has(path string) bool {
	pattern := strings.ToLower(string(f))
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	return matchPath(strings.Split(pattern, "/"), strings.Split(strings.ToLower(path), "/"))
}

// below reports whether files of f can be below a path.
func (f Files) below(path string) bool {
	pattern, parts := strings.Split(strings.ToLower(string(f)), "/"), strings.Split(strings.ToLower(path), "/")
	if len(parts) >= len(pattern) {
		return false
	}
	for i, part := range parts {
		if !matchName(pattern[i], part) { // "**", which may be anything, is left to what is in it
			return false
		}
	}
	return pattern[0] != "**"
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

// matchName matches one name; * is any number of characters.
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

// Restricted are files that decide what others run, and who has a say: pipelines
// of the known forges, actions, owners of code, and configuration of hooks.
var Restricted = []Files{
	".github/workflows/**", ".github/actions/**", "action.yml", "action.yaml", ".github/dependabot.yml", ".github/dependabot.yaml",
	".gitea/workflows/**", ".forgejo/workflows/**", ".gitea/actions/**", ".forgejo/actions/**",
	".gitlab-ci.yml", ".gitlab-ci.yaml", ".gitlab/ci/**", ".gitlab/agents/**",
	".circleci/**", ".travis.yml", "azure-pipelines.yml", "azure-pipelines.yaml", "azure-pipelines/**", "bitbucket-pipelines.yml",
	"Jenkinsfile", "Jenkinsfile.*", ".drone.yml", ".drone.star", ".woodpecker.yml", ".woodpecker.yaml", ".woodpecker/**",
	".buildkite/**", "appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", ".semaphore/**", ".tekton/**", ".builds/**", ".build.yml",
	"cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml", "buildspec.yaml",
	"CODEOWNERS",
	".pre-commit-config.yaml", ".pre-commit-config.yml", ".husky/**", ".githooks/**", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook/**",
}

// Noted are files that decide what others fetch or run when they open a
// checkout; a push that changes them says so.
var Noted = []Files{".gitmodules", ".lfsconfig", ".devcontainer/**", ".devcontainer.json", ".vscode/tasks.json", ".envrc"}

// Summary says what p allows, in one line.
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
