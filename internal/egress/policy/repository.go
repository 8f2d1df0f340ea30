package policy

import (
	"cmp"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// gitPaths are the paths that a git client requests, below the repository's own.
var gitPaths = []string{"/info/refs", "/git-upload-pack", "/git-receive-pack"}

// ForRepository returns the document of a sandbox that works on one repository: remote is its https URL, branch its own
// branch ("" for read-only), shared the refs that it sees in addition (git.ParseRefs; nil: the well-known branches, and
// tags). The document opens the paths that git needs of that repository, by both of its names, and nothing else of its
// host. pullRequests permits opening pull requests by GitHub's API; the API's host needs a rule in another document.
// Errors: InvalidArgument.
func ForRepository(source, remote, branch string, shared []string, pullRequests bool) (*Document, error) {
	r, err := ParseRemote(remote)
	if err != nil {
		return nil, err
	}
	if r.Below {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not one repository", r)
	}
	g := GitRule{ID: source, Remote: r, grants: map[string]Grant{}}
	add := func(to *[]git.Refs, s string) {
		refs, why := git.ParseRefs(s)
		*to = append(*to, refs)
		err = cmp.Or(err, objection(s, why))
	}
	if branch != "" {
		add(&g.push, branch)
	}
	for _, s := range shared {
		add(&g.fetch, s)
	}
	if err != nil {
		return nil, err
	}
	d := &Document{Source: source, Mode: cove.NetworkLimited, Git: []GitRule{g}}
	for _, method := range []string{"GET", "POST"} {
		var paths []string
		for _, name := range []string{r.Path, r.Path + ".git"} {
			for _, p := range gitPaths {
				paths = append(paths, name+p)
			}
			paths = append(paths, name+"/info/lfs/objects/batch")
		}
		rule, err := Exactly(source, r.Host, r.Port, method, paths...)
		if err != nil {
			return nil, err
		}
		d.Rules = append(d.Rules, rule)
	}
	if pullRequests {
		d.PullRequests = Granted
	}
	return d, nil
}
