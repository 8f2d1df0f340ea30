package policy

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// GitRule holds a document's grants for the repositories of one remote. On the host of any GitRule, git operations need
// a grant in addition to a rule. The most specific GitRule for a repository decides; a repository without one is
// refused.
type GitRule struct {
	ID     string // "policy.yaml:12"
	Remote Remote

	fetch, push, protected []git.Refs
	grants                 map[string]Grant // by key of gitGrants; an unset key is absent
	maxPack                int64            // bytes; 0: unset
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

// Asked is a grant that needs an approval each time.
const Asked Grant = "ask"

// gitGrants maps the keys of grants to their defaults.
var gitGrants = map[string]Grant{"update": Granted, "force": Refused, "delete": Refused, "tags": Refused,
	"options": Refused, "downloads": Granted}

const (
	maxGit     = 200
	maxPackMiB = 1 << 20
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
	if r.Path != "" {
		r.Path = upperEncodings(r.Path)
	}
	return r, nil
}

// String returns the URL that ParseRemote parses.
func (r Remote) String() string {
	authority := r.Host.Authority(r.Port)
	if r.Port == 443 {
		authority = strings.TrimSuffix(authority, ":443")
	}
	if r.Below {
		return "https://" + authority + r.Path + "/**"
	}
	return "https://" + authority + r.Path
}

// has reports whether r covers a repository, given without ".git".
func (r Remote) has(path string) bool {
	if r.Below {
		return strings.HasPrefix(path, r.Path+"/")
	}
	return path == r.Path
}

// gitRules parses a document's section on git.
func (p parser) gitRules(n *yaml.Node, d *Document) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxGit {
		return p.problem(n, "git is a list of 1 to %d remotes", maxGit)
	}
	for _, entry := range n.Content {
		if entry.Kind == yaml.AliasNode || entry.Anchor != "" {
			return p.problem(entry, "anchors and aliases are not supported").WithHint("write it out")
		}
		g, err := p.gitRule(entry)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(d.Git, func(other GitRule) bool { return other.Remote == g.Remote }); i >= 0 {
			return p.problem(entry, "%s is there already, in %s", g.Remote, d.Git[i].ID)
		}
		d.Git = append(d.Git, g)
	}
	return nil
}

func (p parser) gitRule(n *yaml.Node) (GitRule, error) {
	g := GitRule{ID: p.source + ":" + strconv.Itoa(n.Line), grants: map[string]Grant{}}
	refs := func(what string, to *[]git.Refs) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			*to = []git.Refs{}
			if what == "fetch" && n.Kind == yaml.SequenceNode && len(n.Content) == 0 { // only its own branches
				return nil
			}
			return p.list(n, what, func(s string) error {
				r, why := git.ParseRefs(s)
				*to = append(*to, r)
				return objection(s, why)
			})
		}
	}
	keys := map[string]func(*yaml.Node) error{
		"remote": func(n *yaml.Node) error {
			s, err := p.scalar(n, "remote")
			if err == nil {
				g.Remote, err = ParseRemote(s)
				err = p.wrap(n, err)
			}
			return err
		},
		"fetch":     refs("fetch", &g.fetch),
		"push":      refs("push", &g.push),
		"protected": refs("protected", &g.protected),
		"max_pack_mb": func(n *yaml.Node) error {
			s, err := p.scalar(n, "max_pack_mb")
			mib, bad := strconv.ParseInt(s, 10, 64)
			if err == nil && (bad != nil || mib < 1 || mib > maxPackMiB) {
				return p.problem(n, "max_pack_mb is a number of MiB, 1 to %d", maxPackMiB)
			}
			g.maxPack = mib << 20
			return err
		},
		"files":   func(n *yaml.Node) error { return p.gitFiles(n, &g) },
		"secrets": func(n *yaml.Node) error { return p.gitSecrets(n, &g) },
	}
	for key := range gitGrants {
		keys[key] = func(n *yaml.Node) error { return p.gitGrant(n, key, g.grants) }
	}
	if err := p.mapping(n, "a remote of git", keys); err != nil {
		return GitRule{}, err
	}
	switch {
	case g.Remote.Host.IsZero():
		return GitRule{}, p.problem(n, "it says not which remote").WithHint("add remote: https://HOST/OWNER/REPOSITORY")
	case slices.Contains(g.push, git.WellKnownRefs) || slices.Contains(g.protected, git.WellKnownRefs):
		return GitRule{}, p.problem(n, "%s is for fetch: what is pushed is named", git.WellKnownRefs)
	}
	return g, nil
}

func objection(s, why string) error {
	if why == "" {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s is refused: %s", quote(s), why)
}

func (p parser) gitGrant(n *yaml.Node, key string, to map[string]Grant) error {
	s, err := p.scalar(n, key)
	if err != nil {
		return err
	}
	to[key] = Grant(s)
	// options and downloads are passed on or not; there is no question to ask
	asks := key != "options" && key != "downloads"
	if to[key] == Granted || to[key] == Refused || to[key] == Asked && asks {
		return nil
	}
	if asks {
		return p.problem(n, "%s is allow, deny or ask", key)
	}
	return p.problem(n, "%s is allow or deny", key)
}

func (p parser) gitFiles(n *yaml.Node, g *GitRule) error {
	parse := func(s string) (git.Files, error) {
		f, why := git.ParseFiles(s)
		return f, objection(s, why)
	}
	return p.mapping(n, "files", map[string]func(*yaml.Node) error{
		"block": listOf(p, "block", parse, &g.block),
		"warn":  listOf(p, "warn", parse, &g.warn),
		"defaults": func(n *yaml.Node) error {
			if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
				return p.problem(n, "defaults is true or false")
			}
			g.bare = n.Value == "false"
			return nil
		},
	})
}

func (p parser) gitSecrets(n *yaml.Node, g *GitRule) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > maxGit {
		return p.problem(n, "secrets is a list of 1 to %d patterns, each with a name", maxGit)
	}
	for _, entry := range n.Content {
		var s git.Secret
		err := p.mapping(entry, "a secret", map[string]func(*yaml.Node) error{
			"name": func(n *yaml.Node) (err error) { s.Name, err = p.scalar(n, "name"); return err },
			"pattern": func(n *yaml.Node) error {
				text, err := p.scalar(n, "pattern")
				if err != nil {
					return err
				}
				if s.Pattern, err = regexp.Compile(text); err != nil {
					return p.problem(n, "pattern is no regular expression (RE2): %s",
						strings.TrimPrefix(err.Error(), "error parsing regexp: "))
				}
				if s.Pattern.MatchString("") {
					return p.problem(n, "pattern is found in everything")
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		if s.Name == "" || s.Pattern == nil {
			return p.problem(entry, "a secret has a name and a pattern")
		}
		g.secrets = append(g.secrets, s)
	}
	return nil
}

// mergeGit adds another document's grants: its allowances extend, its denials always count.
func (p *Policy) mergeGit(rules []GitRule) {
	p.git = slices.Clone(p.git) // a Policy never changes
	for _, r := range rules {
		i := slices.IndexFunc(p.git, func(g GitRule) bool { return g.Remote == r.Remote })
		if i < 0 {
			p.git = append(p.git, r.normal())
			continue
		}
		g, r := p.git[i], r.normal()
		g.ID = r.ID
		g.fetch, g.push, g.protected = union(g.fetch, r.fetch), union(g.push, r.push), union(g.protected, r.protected)
		g.grants = maps.Clone(g.grants)
		for key, said := range r.grants {
			g.grants[key] = stricter(g.grants[key], said)
		}
		g.maxPack = smaller(g.maxPack, r.maxPack)
		g.block, g.warn, g.secrets = union(g.block, r.block), union(g.warn, r.warn), slices.Concat(g.secrets, r.secrets)
		g.bare = g.bare && r.bare
		p.git[i] = g
	}
}

// normal returns g with the default of fetch filled in.
func (g GitRule) normal() GitRule {
	if g.fetch == nil {
		g.fetch = git.Usual
	}
	return g
}

// dropGit drops the grants of earlier documents. Their remotes stay, without any grant: a judged host does not become
// an unjudged one.
func (p *Policy) dropGit() {
	p.git = slices.Clone(p.git)
	for i, g := range p.git {
		g.fetch, g.push, g.bare = []git.Refs{}, nil, false
		g.grants = maps.Clone(g.grants)
		maps.DeleteFunc(g.grants, func(_ string, said Grant) bool { return said == Granted })
		p.git[i] = g
	}
}

// stricter returns the stricter of two grants: a denial wins, then a question.
func stricter(a, b Grant) Grant {
	for _, g := range []Grant{Refused, Asked, Granted} {
		if a == g || b == g {
			return g
		}
	}
	return Unsaid
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

// GitHost reports whether git operations at a host need a grant. The answer covers every port, because each may lead to
// the same server.
func (p *Policy) GitHost(h Host) bool {
	return p != nil && slices.ContainsFunc(p.git, func(g GitRule) bool { return g.Remote.Host == h })
}

// Git returns the git policy of a repository, by its path with ".git" or without; nil if it has none.
func (p *Policy) Git(h Host, port uint16, path string) *git.Policy {
	if p == nil {
		return nil
	}
	path = strings.TrimSuffix(path, ".git")
	var best *GitRule
	for i := range p.git {
		g := &p.git[i]
		if g.Remote.Host != h || g.Remote.Port != port || !g.Remote.has(path) {
			continue
		}
		if best == nil || best.Remote.Below && (!g.Remote.Below || len(g.Remote.Path) > len(best.Remote.Path)) {
			best = g
		}
	}
	if best == nil {
		return nil
	}
	return best.policy()
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
	made := &git.Policy{ID: g.ID, Fetch: g.fetch, Push: g.push, Protected: g.protected,
		Update: grant("update"), Force: grant("force"), Delete: grant("delete"), Tags: grant("tags"),
		Options:   grant("options"),
		Downloads: grant("downloads") == git.Allow, MaxPack: g.maxPack,
		Block: append([]git.Files{}, g.block...), Warn: append([]git.Files{}, g.warn...), Secrets: g.secrets}
	if !g.bare {
		made.Block, made.Warn = append(made.Block, git.Restricted...), append(made.Warn, git.Noted...)
	}
	return made
}

// node returns g in the form that Parse reads.
func (g *GitRule) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, "remote", text(g.Remote.String()))
	for _, part := range []struct {
		key  string
		refs []git.Refs
	}{{"fetch", g.fetch}, {"push", g.push}, {"protected", g.protected}} {
		if len(part.refs) > 0 || part.key == "fetch" && part.refs != nil {
			put(n, part.key, list(texts(part.refs)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g.grants)) {
		put(n, key, text(string(g.grants[key])))
	}
	if g.maxPack > 0 {
		put(n, "max_pack_mb", plain(strconv.FormatInt(g.maxPack>>20, 10), "!!int"))
	}
	if files := g.filesNode(); len(files.Content) > 0 {
		put(n, "files", files)
	}
	if len(g.secrets) > 0 {
		all := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range g.secrets {
			one := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			put(one, "name", text(s.Name))
			put(one, "pattern", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.Pattern.String(),
				Style: yaml.DoubleQuotedStyle})
			all.Content = append(all.Content, one)
		}
		put(n, "secrets", all)
	}
	return n
}

func (g *GitRule) filesNode() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if len(g.block) > 0 {
		put(n, "block", list(texts(g.block)))
	}
	if len(g.warn) > 0 {
		put(n, "warn", list(texts(g.warn)))
	}
	if g.bare {
		put(n, "defaults", plain("false", "!!bool"))
	}
	return n
}

func texts[T ~string](values []T) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

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
