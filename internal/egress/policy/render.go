package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Digest returns the SHA-256, in hex, of mode and rules. Equivalent policies have the same digest, whatever their
// sources. The machine's part is excluded.
func (p *Policy) Digest() (string, error) {
	if p == nil {
		p = &Policy{}
	}
	text, err := (&Document{Mode: p.Mode(), PullRequests: p.pullRequests, Git: p.git,
		Rules: slices.Concat(p.deny, p.allow, p.ask)}).YAML()
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// YAML renders a document in the form that Parse reads. Sources and lines are lost.
func (d *Document) YAML() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	if d.Mode != "" {
		put(root, "mode", text(string(d.Mode)))
	}
	if d.Replace {
		put(root, "merge", text("replace"))
	}
	if len(d.Presets) > 0 {
		var names []string
		for _, p := range d.Presets {
			names = append(names, p.Name)
		}
		put(root, "presets", list(names))
	}
	if d.PullRequests != Unsaid {
		github := &yaml.Node{Kind: yaml.MappingNode}
		put(github, "pull_requests", text(string(d.PullRequests)))
		put(root, "github", github)
	}
	if len(d.Git) > 0 {
		all := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range d.Git {
			all.Content = append(all.Content, d.Git[i].node())
		}
		put(root, "git", all)
	}
	rules := &yaml.Node{Kind: yaml.SequenceNode}
	if len(d.Rules) == 0 {
		rules.Style = yaml.FlowStyle
	}
	for i := range d.Rules {
		rules.Content = append(rules.Content, d.Rules[i].node())
	}
	put(root, "rules", rules)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

func (r *Rule) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, HeadComment: r.comment}
	var hosts, cidrs, ports, paths []string
	depth := 0
	for _, h := range r.hosts {
		hosts = append(hosts, h.String())
		depth = max(depth, h.depth)
	}
	for _, c := range r.cidrs {
		cidrs = append(cidrs, c.String())
	}
	for _, p := range r.ports {
		ports = append(ports, p.String())
	}
	for _, g := range r.paths {
		paths = append(paths, g.text)
	}
	for _, part := range []struct {
		key    string
		values []string
	}{{"hosts", hosts}, {"cidrs", cidrs}, {"ports", ports}, {"methods", r.methods}, {"paths", paths}} {
		if part.values != nil {
			put(n, part.key, list(part.values))
		}
	}
	if depth > 1 {
		put(n, "depth", plain(strconv.Itoa(depth), "!!int"))
	}
	if r.PassThrough {
		put(n, "pass_through", plain("true", "!!bool"))
	}
	if r.Action != Allow {
		put(n, "action", text(r.Action.String()))
	}
	if r.Note != "" {
		put(n, "note", text(r.Note))
	}
	return n
}

func put(mapping *yaml.Node, key string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, text(key), value)
}

// text returns a string node; numbers need no quotes, since Parse reads the text as written.
func text(s string) *yaml.Node {
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return plain(s, "!!int")
	}
	return plain(s, "!!str")
}

func plain(s, tag string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s} }

func list(values []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		n.Content = append(n.Content, text(v))
	}
	return n
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
