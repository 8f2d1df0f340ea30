package policy

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
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
