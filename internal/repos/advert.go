package repos

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// advert holds the refs that a repository advertises.
type advert struct {
	head string            // full name of HEAD's branch; empty if not stated
	at   string            // id of HEAD; empty when it is unborn or dangling
	refs map[string]string // full names to ids; annotated tags by their own id, not their target's
	// stash is the id of the last stash of a repository that a person or a sandbox works in; empty is none.
	stash string
	// detached is the commit that a directory of this machine has checked out without a branch.
	detached string
}

// parseAdvert parses the output of git ls-remote --symref. Refs with names that Cove refuses are dropped. Errors:
// Unavailable for malformed output.
func parseAdvert(out string) (advert, error) {
	a := advert{refs: map[string]string{}}
	for line := range strings.Lines(out) {
		value, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if target, symbolic := strings.CutPrefix(value, "ref: "); symbolic && ok {
			if name == "HEAD" && hostgit.ValidRef(target) && strings.HasPrefix(target, "refs/heads/") {
				a.head = target
			}
			continue
		}
		if !ok || !hostgit.ValidID(value) {
			return advert{}, cove.Errorf(cove.Unavailable, "the remote does not list its refs")
		}
		switch {
		case name == "HEAD":
			a.at = value
		case name == stashRef:
			a.stash = value
		case hostgit.ValidRef(name):
			a.refs[name] = value
		}
	}
	// An old server does not state HEAD's branch, and a server without commits has none.
	if _, ok := a.refs[a.head]; !ok {
		a.head = ""
	}
	return a, nil
}

// guessHead returns the branch to begin at when the remote does not state HEAD.
func (a advert) guessHead() string {
	for _, name := range []string{"refs/heads/main", "refs/heads/master"} {
		if _, ok := a.refs[name]; ok && a.head == "" {
			return name
		}
	}
	if branches := a.branches(); a.head == "" && len(branches) == 1 {
		return "refs/heads/" + branches[0]
	}
	return a.head
}

// branches returns the sorted short names of all branches.
func (a advert) branches() []string {
	var names []string
	for ref := range a.refs {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// shared returns the refs that every sandbox may read: the default branch, well-known branches, tags, and more.
func (a advert) shared(more []policy.Refs) map[string]string {
	chosen := maps.Clone(a.refs)
	head := a.guessHead()
	maps.DeleteFunc(chosen, func(ref, _ string) bool {
		return !strings.HasPrefix(ref, "refs/tags/") && !policy.WellKnown(ref, head) &&
			!slices.ContainsFunc(more, func(set policy.Refs) bool { return set.Has(ref) })
	})
	return chosen
}

// formatOf returns the format that an id has: "sha1" or "sha256".
func formatOf(id string) string {
	if len(id) == 64 {
		return "sha256"
	}
	return "sha1"
}

// objectFormat returns the format of the ids: "sha1" or "sha256".
func (a advert) objectFormat() string {
	for _, id := range a.refs { // all have the same
		return formatOf(id)
	}
	return formatOf("")
}

// start is the beginning of a sandbox's branch, as decided from the remote's refs.
type start struct {
	branch string // short name of the sandbox's own branch
	from   string // as the user wrote it: a branch, a tag, an id
	ref    string // full name of the starting ref; empty for an id
	id     string // of ref, or the requested id; empty in an empty repository
	tracks bool   // the remote has the branch already
}

// plan decides the start. taken reports branches of other sandboxes of the repository. Errors: InvalidArgument,
// NotFound, Conflict.
func plan(a advert, name, branch, from string, taken func(branch string) bool) (start, error) {
	s := start{branch: branch}
	if branch == "" {
		s.branch = freeBranch(a, name, taken)
	}
	if !hostgit.ValidBranch(s.branch) {
		return start{}, cove.Errorf(cove.InvalidArgument, "%.200q is no name of a branch",
			s.branch).WithHint(`one is like "cove/brave-otter"`)
	}
	if taken(s.branch) {
		return start{}, cove.Errorf(cove.Conflict, "the branch %s is another sandbox's",
			s.branch).WithHint("choose another, or leave it out to have one made up")
	}
	own := "refs/heads/" + s.branch
	_, s.tracks = a.refs[own]
	switch {
	case from == "" && s.tracks:
		s.ref = own
	case from == "" && a.detached != "":
		s.id = a.detached
	case from == "":
		s.ref = a.guessHead()
		if s.ref == "" && len(a.refs) > 0 {
			return start{}, cove.Errorf(cove.NotFound, "the repository does not say which branch is its default").WithHint(
				"say what to begin at: cove new REPO BRANCH FROM")
		}
	case hostgit.ValidID(from):
		s.id = from
	default:
		if s.ref = a.find(from); s.ref == "" {
			return start{}, cove.Errorf(cove.NotFound, "the repository has no branch or tag %.200q",
				from).WithHint("give a name, or the whole id of a commit")
		}
	}
	if s.ref != "" {
		s.id = a.refs[s.ref]
	}
	if s.from = strings.TrimPrefix(strings.TrimPrefix(s.ref, "refs/heads/"), "refs/tags/"); s.from == "" {
		s.from = s.id
	}
	return s, nil
}

// find returns the full name of a ref by its short one; a branch before a tag.
func (a advert) find(name string) string {
	name = strings.TrimPrefix(name, "origin/")
	for _, ref := range []string{"refs/heads/" + name, "refs/tags/" + name, name} {
		if _, ok := a.refs[ref]; ok && (strings.HasPrefix(ref, "refs/heads/") || strings.HasPrefix(ref, "refs/tags/")) {
			return ref
		}
	}
	return ""
}

// freeBranch returns a new branch name, unused at the remote and by other sandboxes.
func freeBranch(a advert, name string, taken func(string) bool) string {
	for n := 1; ; n++ {
		branch := "cove/" + name
		if n > 1 {
			branch += "-" + strconv.Itoa(n)
		}
		if _, there := a.refs["refs/heads/"+branch]; !there && !taken(branch) {
			return branch
		}
	}
}
