package policy

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// GitRule holds a document's grants for the repositories of one remote. On its host, git needs a grant in addition to a
// rule. The most specific GitRule for a repository decides; a repository without one is refused.
type GitRule struct {
	ID     string // "policy.yaml:12"
	Remote Remote

	fetch, push, protected []git.Refs
	own                    []git.Refs       // like push; the guarded ones are asked about, unless push names them
	grants                 map[string]Grant // by key of gitGrants; an unset key is absent
	maxPack                int64            // bytes; 0: unset
	maxUpdates, maxDeleted int64            // 0: unset
	block, warn            []git.Files
	bare                   bool // without Cove's list of restricted files
	secrets                []git.Secret
}

// Remote is one repository, or all repositories below a path.
type Remote struct {
	Host  Host
	Port  uint16
	Path  string // "/owner/repo" without ".git"; for many "/owner", or ""
	Below bool
}

// gitGrants maps the keys of grants to their defaults.
var gitGrants = map[string]Grant{"update": Granted, "force": Refused, "delete": Refused, "tags": Refused,
	"options": Refused, "downloads": Granted, "known_secrets": Refused}

const (
	maxGit     = 200
	maxPackMiB = 1 << 20
	maxUpdates = 5000    // each of them is compared to the others
	maxDeleted = 100_000 // as many are counted
)

// ParseRemote parses the URL of a repository, or of many with "/**" at its end. Errors: InvalidArgument.
func ParseRemote(s string) (Remote, error) {
	bad := func(why string) (Remote, error) {
		return Remote{}, cove.Errorf(cove.InvalidArgument, "%s is no remote: %s", quote(s),
			why).WithHint("it is https://HOST/OWNER/REPOSITORY, or https://HOST/OWNER/**")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return bad("it is not the URL of something at https")
	case u.User != nil:
		return bad("it has a user: credentials are said elsewhere")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("it has a query")
	}
	var r Remote
	if r.Host, r.Port, err = ParseAuthority(u.Host, 443); err != nil {
		return Remote{}, err
	}
	r.Path, r.Below = strings.CutSuffix(u.EscapedPath(), "/**")
	r.Path = strings.TrimSuffix(strings.TrimSuffix(r.Path, "/"), ".git")
	if strings.Contains(r.Path, "*") {
		return bad("** stands at the end only")
	}
	if r.Path == "" && !r.Below {
		return bad("it names no repository")
	}
	if why := objectionToPath(cmp.Or(r.Path, "/")); why != "" {
		return bad(why)
	}
	r.Path = upperEncodings(r.Path)
	return r, nil
}

// String returns the URL that ParseRemote parses.
func (r Remote) String() string {
	text := "https://" + strings.TrimSuffix(r.Host.Authority(r.Port), ":443") + r.Path
	if r.Below {
		text += "/**"
	}
	return text
}

// has reports whether r covers a repository, given without ".git".
func (r Remote) has(path string) bool {
	if r.Below {
		return strings.HasPrefix(path, r.Path+"/")
	}
	return path == r.Path
}

// mergeGit adds another document's grants: its allowances extend, its denials always count.
func mergeGit(all, rules []GitRule) []GitRule {
	all = slices.Clone(all) // a Policy never changes
	for _, r := range rules {
		i := slices.IndexFunc(all, func(g GitRule) bool { return g.Remote == r.Remote })
		if i < 0 {
			all = append(all, r.normal())
			continue
		}
		g, r := all[i], r.normal()
		g.ID = r.ID
		g.fetch, g.push, g.protected = union(g.fetch, r.fetch), union(g.push, r.push), union(g.protected, r.protected)
		g.own = union(g.own, r.own)
		g.grants = maps.Clone(g.grants)
		for key, said := range r.grants {
			g.grants[key] = stricter(g.grants[key], said)
		}
		g.maxPack = smaller(g.maxPack, r.maxPack)
		g.maxUpdates, g.maxDeleted = smaller(g.maxUpdates, r.maxUpdates), smaller(g.maxDeleted, r.maxDeleted)
		g.block, g.warn, g.secrets = union(g.block, r.block), union(g.warn, r.warn), slices.Concat(g.secrets, r.secrets)
		g.bare = g.bare && r.bare
		all[i] = g
	}
	return all
}

// normal returns g with the default of fetch filled in.
func (g GitRule) normal() GitRule {
	if g.fetch == nil {
		g.fetch = git.Usual
	}
	return g
}

// dropGit drops the grants of earlier documents, but not their remotes: a judged host does not become an unjudged one.
func dropGit(all []GitRule) []GitRule {
	all = slices.Clone(all)
	for i, g := range all {
		g.fetch, g.push, g.own, g.bare = []git.Refs{}, nil, nil, false
		g.grants = maps.Clone(g.grants)
		maps.DeleteFunc(g.grants, func(_ string, said Grant) bool { return said == Granted })
		all[i] = g
	}
	return all
}

func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

func union[T comparable](a, b []T) []T {
	all := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	return all
}

func (g *GitRule) policy() *git.Policy {
	grant := func(key string) git.Action {
		switch cmp.Or(g.grants[key], gitGrants[key]) {
		case Granted:
			return git.Allow
		case Asked:
			return git.Ask
		}
		return git.Deny
	}
	asked := slices.DeleteFunc(slices.Clone(g.own), func(r git.Refs) bool {
		return !git.Guarded(string(r)) || slices.Contains(g.push, r)
	})
	made := &git.Policy{ID: g.ID, Fetch: g.fetch, Push: union(g.push, g.own), Asked: asked, Protected: g.protected,
		Update: grant("update"), Force: grant("force"), Delete: grant("delete"), Tags: grant("tags"),
		Options: grant("options"), Downloads: grant("downloads") == git.Allow, MaxPack: g.maxPack,
		Known: grant("known_secrets"), MaxUpdates: int(g.maxUpdates), MaxDeleted: int(g.maxDeleted),
		Block: append([]git.Files{}, g.block...), Warn: append([]git.Files{}, g.warn...), Secrets: g.secrets}
	if !g.bare {
		made.Block, made.Warn = append(made.Block, git.Restricted...), append(made.Warn, git.Noted...)
	}
	return made
}

// Grant is a document's decision on something outside its rules. Without a decision it is refused; a denial wins.
type Grant string

const (
	Unsaid  Grant = ""
	Granted Grant = "allow"
	Refused Grant = "deny"
)

// Asked is a grant that needs an approval each time.
const Asked Grant = "ask"

// stricter returns the stricter of two grants: a denial wins, then a question.
func stricter(a, b Grant) Grant {
	for _, g := range []Grant{Refused, Asked, Granted} {
		if a == g || b == g {
			return g
		}
	}
	return Unsaid
}
