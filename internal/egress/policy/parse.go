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
		"mode":    func(n *yaml.Node) error { return p.mode(n, &d.Mode) },
		"merge":   func(n *yaml.Node) error { return p.merge(n, &d.Replace) },
		"presets": func(n *yaml.Node) error { return p.presets(n, d) },
		"rules":   func(n *yaml.Node) error { return p.rules(n, d) },
		"github":  func(n *yaml.Node) error { return p.github(n, d) },
		"git":     func(n *yaml.Node) error { return p.gitRules(n, d) },
	})
	if err != nil {
		return nil, err
	}
	if d.Replace && d.Mode == "" {
		return nil, p.problem(root, "merge: replace takes the earlier layers' place, so it says the mode").WithHint(
			"add mode: limited")
	}
	return d, nil
}

func (p parser) mode(n *yaml.Node, mode *cove.NetworkMode) error {
	s, err := p.scalar(n, "mode")
	if err != nil {
		return err
	}
	*mode, err = ParseMode(s)
	return p.wrap(n, err)
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

func (p parser) merge(n *yaml.Node, replace *bool) error {
	switch s, err := p.scalar(n, "merge"); {
	case err != nil:
		return err
	case s != "extend" && s != "replace":
		return p.problem(n, "merge is extend or replace")
	default:
		*replace = s == "replace"
		return nil
	}
}

// github reads the grants for GitHub's API.
func (p parser) github(n *yaml.Node, d *Document) error {
	return p.mapping(n, "github", map[string]func(*yaml.Node) error{
		"pull_requests": func(n *yaml.Node) error {
			s, err := p.scalar(n, "pull_requests")
			if err == nil && s != string(Granted) && s != string(Refused) {
				return p.problem(n, "pull_requests is allow or deny")
			}
			d.PullRequests = Grant(s)
			return err
		},
	})
}

func (p parser) presets(n *yaml.Node, d *Document) error {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return nil
	}
	entry := n
	i := 0
	return p.list(n, "presets", func(name string) error {
		if n.Kind == yaml.SequenceNode {
			entry = n.Content[i]
			i++
		}
		if err := knownPreset(name); err != nil {
			return err
		}
		d.Presets = append(d.Presets, PresetUse{Name: name, ID: p.source + ":" + strconv.Itoa(entry.Line)})
		return nil
	})
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
