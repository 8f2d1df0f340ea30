package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Digest returns the SHA-256, in hex, of mode and rules, whatever their sources, and without the machine's part.
func (p *Policy) Digest() (string, error) {
	if p == nil {
		p = &Policy{}
	}
	d := &Document{Mode: p.Mode(), PullRequests: p.pullRequests, Repositories: p.repositories, Git: p.git,
		Unshared: p.unshared}
	for _, r := range slices.Concat(p.deny, p.allow, p.ask) {
		d.Rules = append(d.Rules, *r)
	}
	text, err := d.YAML()
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
	if d.Unshared {
		put(root, "package_cache", text("deny"))
	}
	if len(d.Presets) > 0 {
		put(root, "presets", list(texts(d.Presets, func(p PresetUse) string { return p.Name })))
	}
	github := &yaml.Node{Kind: yaml.MappingNode}
	if d.PullRequests != Unsaid {
		put(github, "pull_requests", text(string(d.PullRequests)))
	}
	if len(d.Repositories) > 0 {
		put(github, "repositories", list(texts(d.Repositories, repositories.String)))
	}
	if len(github.Content) > 0 {
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
	depth := 0
	for _, h := range r.hosts {
		depth = max(depth, h.depth)
	}
	for _, part := range []struct {
		key    string
		values []string
	}{
		{"hosts", texts(r.hosts, pattern.String)},
		{"cidrs", texts(r.cidrs, netip.Prefix.String)},
		{"ports", texts(r.ports, portRange.String)},
		{"methods", r.methods},
		{"paths", texts(r.paths, func(g glob) string { return g.text })},
	} {
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
	}{{"fetch", g.fetch}, {"push", g.push}, {"own", g.own}, {"protected", g.protected}} {
		if len(part.refs) > 0 || part.key == "fetch" && part.refs != nil {
			put(n, part.key, list(texts(part.refs, func(r git.Refs) string { return string(r) })))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g.grants)) {
		put(n, key, text(string(g.grants[key])))
	}
	if g.maxPack > 0 {
		put(n, "max_pack_mb", plain(strconv.FormatInt(g.maxPack>>20, 10), "!!int"))
	}
	if g.maxUpdates > 0 {
		put(n, "max_updates", plain(strconv.FormatInt(g.maxUpdates, 10), "!!int"))
	}
	if g.maxDeleted > 0 {
		put(n, "max_deleted", plain(strconv.FormatInt(g.maxDeleted, 10), "!!int"))
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
	file := func(f git.Files) string { return string(f) }
	if len(g.block) > 0 {
		put(n, "block", list(texts(g.block, file)))
	}
	if len(g.warn) > 0 {
		put(n, "warn", list(texts(g.warn, file)))
	}
	if g.bare {
		put(n, "defaults", plain("false", "!!bool"))
	}
	return n
}

func texts[T any](values []T, text func(T) string) (all []string) {
	for _, v := range values {
		all = append(all, text(v))
	}
	return all
}
