package policy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Parse parses a policy in YAML. source is its file's name for messages and rule ids. An empty document allows nothing.
// Errors: InvalidArgument with file and line.
func Parse(source string, data []byte) (*Document, error) {
	root, err := readYAML(source, data)
	if err != nil {
		return nil, err
	}
	d := &Document{Source: source}
	if root == nil {
		return d, nil
	}
	p := parser{source: source}
	err = p.mapping(root, "the policy", map[string]func(*yaml.Node) error{
		"mode":    valueOf(p, "mode", ParseMode, &d.Mode),
		"merge":   valueOf(p, "merge", parseMerge, &d.Replace),
		"presets": func(n *yaml.Node) error { return p.presets(n, d) },
		"rules":   func(n *yaml.Node) error { return p.rules(n, d) },
		"github": func(n *yaml.Node) error {
			return p.mapping(n, "github", map[string]func(*yaml.Node) error{
				"pull_requests": valueOf(p, "pull_requests", parsePullRequests, &d.PullRequests),
				"repositories":  listOf(p, "repositories", parseRepositories, (*[]repositories)(&d.Repositories)),
			})
		},
		"git":           func(n *yaml.Node) error { return p.gitRules(n, d) },
		"package_cache": valueOf(p, "package_cache", parsePackageCache, &d.Unshared),
	})
	if err != nil {
		return nil, err
	}
	if d.Replace && d.Mode == "" {
		return nil, p.problem(root, "merge: replace takes the earlier layers' place, so it says the mode").
			WithHint("add mode: limited")
	}
	return d, nil
}

// ParseMode reads a network mode. Errors: InvalidArgument.
func ParseMode(s string) (cove.NetworkMode, error) {
	mode := cove.NetworkMode(s)
	if slices.Contains(modes, mode) {
		return mode, nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "%s is no network mode",
		quote(s)).WithHint("it is none, limited, host-only or open")
}

var modes = []cove.NetworkMode{cove.NetworkNone, cove.NetworkLimited, cove.NetworkHostOnly, cove.NetworkOpen}

func parseMerge(s string) (replace bool, err error) {
	if s != "extend" && s != "replace" {
		return false, cove.Errorf(cove.InvalidArgument, "merge is extend or replace")
	}
	return s == "replace", nil
}

func parsePackageCache(s string) (unshared bool, err error) {
	if s != "allow" && s != "deny" {
		return false, cove.Errorf(cove.InvalidArgument, "package_cache is allow or deny")
	}
	return s == "deny", nil
}

func parsePullRequests(s string) (Grant, error) {
	if s != string(Granted) && s != string(Refused) {
		return Unsaid, cove.Errorf(cove.InvalidArgument, "pull_requests is allow or deny")
	}
	return Grant(s), nil
}

func (p parser) presets(n *yaml.Node, d *Document) error {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return nil
	}
	return p.list(n, "presets", func(entry *yaml.Node, name string) error {
		if err := KnownPreset(name); err != nil {
			return err
		}
		d.Presets = append(d.Presets, PresetUse{Name: name, ID: p.source + ":" + strconv.Itoa(entry.Line)})
		return nil
	})
}

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
	parse := func(s string) (git.Refs, error) {
		r, why := git.ParseRefs(s)
		return r, objection(s, why)
	}
	keys := map[string]func(*yaml.Node) error{
		"remote": valueOf(p, "remote", ParseRemote, &g.Remote),
		"fetch": func(n *yaml.Node) error {
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 { // only its own branches
				g.fetch = []git.Refs{}
				return nil
			}
			return listOf(p, "fetch", parse, &g.fetch)(n)
		},
		"push":        listOf(p, "push", parse, &g.push),
		"own":         listOf(p, "own", parse, &g.own),
		"protected":   listOf(p, "protected", parse, &g.protected),
		"max_pack_mb": valueOf(p, "max_pack_mb", parseMaxPack, &g.maxPack),
		"max_updates": valueOf(p, "max_updates", numberUpTo("max_updates", maxUpdates), &g.maxUpdates),
		"max_deleted": valueOf(p, "max_deleted", numberUpTo("max_deleted", maxDeleted), &g.maxDeleted),
		"files":       func(n *yaml.Node) error { return p.gitFiles(n, &g) },
		"secrets":     func(n *yaml.Node) error { return p.gitSecrets(n, &g) },
	}
	for key := range gitGrants {
		keys[key] = func(n *yaml.Node) error {
			var said Grant
			err := valueOf(p, key, func(s string) (Grant, error) { return parseGitGrant(key, s) }, &said)(n)
			g.grants[key] = said
			return err
		}
	}
	if err := p.mapping(n, "a remote of git", keys); err != nil {
		return GitRule{}, err
	}
	switch {
	case g.Remote.Host.IsZero():
		return GitRule{}, p.problem(n, "it says not which remote").WithHint("add remote: https://HOST/OWNER/REPOSITORY")
	case slices.Contains(slices.Concat(g.push, g.own, g.protected), git.WellKnownRefs):
		return GitRule{}, p.problem(n, "%s is for fetch: what is pushed is named", git.WellKnownRefs)
	}
	return g, nil
}

// parseMaxPack reads a number of MiB as bytes.
func parseMaxPack(s string) (int64, error) {
	mib, err := strconv.ParseInt(s, 10, 64)
	if err != nil || mib < 1 || mib > maxPackMiB {
		return 0, cove.Errorf(cove.InvalidArgument, "max_pack_mb is a number of MiB, 1 to %d", maxPackMiB)
	}
	return mib << 20, nil
}

// numberUpTo reads a number from 1 to most.
func numberUpTo(key string, most int64) func(string) (int64, error) {
	return func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || n > most {
			return 0, cove.Errorf(cove.InvalidArgument, "%s is a number, 1 to %d", key, most)
		}
		return n, nil
	}
}

func parseGitGrant(key, s string) (Grant, error) {
	said, choice := []string{"allow", "deny", "ask"}, "allow, deny or ask"
	if key == "options" || key == "downloads" { // they are passed on or not; there is no question to ask
		said, choice = said[:2], "allow or deny"
	}
	if !slices.Contains(said, s) {
		return Unsaid, cove.Errorf(cove.InvalidArgument, "%s is %s", key, choice)
	}
	return Grant(s), nil
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
			defaults, err := p.boolean(n, "defaults")
			g.bare = !defaults
			return err
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
			"name":    valueOf(p, "name", asWritten, &s.Name),
			"pattern": valueOf(p, "pattern", parseSecret, &s.Pattern),
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

func parseSecret(s string) (*regexp.Regexp, error) {
	pattern, err := regexp.Compile(s)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "pattern is no regular expression (RE2): %s",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if pattern.MatchString("") {
		return nil, cove.Errorf(cove.InvalidArgument, "pattern is found in everything")
	}
	return pattern, nil
}
