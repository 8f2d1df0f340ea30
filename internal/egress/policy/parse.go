package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

// Limits; a larger document is a mistake or an attack.
const (
	maxDocument = 1 << 20 // bytes
	maxRules    = 5000
	maxEntries  = 1000 // of one list
	maxNote     = 500  // bytes
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

// readYAML returns the single value of a document, or nil if it is empty.
func readYAML(source string, data []byte) (*yaml.Node, error) {
	switch {
	case len(data) > maxDocument:
		return nil, cove.Errorf(cove.InvalidArgument, "%s is larger than %d MiB", source,
			maxDocument>>20).WithHint("is it the right file?")
	case !utf8.Valid(data):
		return nil, cove.Errorf(cove.InvalidArgument, "%s:%d: this is not UTF-8", source, invalidLine(data))
	case bytes.IndexByte(data, 0) >= 0:
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not YAML: it has NUL bytes", source)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil // only comments
	} else if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not YAML: %s", source, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, cove.Errorf(cove.InvalidArgument, "%s has more than one YAML document",
			source).WithHint("remove what follows ---")
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

func invalidLine(data []byte) int {
	line := 1
	for text := range bytes.Lines(data) {
		if !utf8.Valid(text) {
			break
		}
		line++
	}
	return line
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// parser walks through the YAML nodes itself, so that every message has a line and no value is converted silently.
type parser struct {
	source string
	preset string // the preset's name, if the document is one
}

func (p parser) problem(n *yaml.Node, format string, args ...any) *cove.Error {
	return cove.Errorf(cove.InvalidArgument, "%s:%d: %s", p.source, n.Line, fmt.Sprintf(format, args...))
}

// wrap adds file and line to an error of one value.
func (p parser) wrap(n *yaml.Node, err error) error {
	if err == nil {
		return nil
	}
	e := p.problem(n, "%s", bare(err))
	if hint := cove.ErrorHint(err); hint != "" {
		return e.WithHint("%s", hint)
	}
	return e
}

// mapping reads a mapping with known keys.
func (p parser) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.problem(n, "%s must be a mapping", what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := keys[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !ok:
			known := strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
			return p.problem(key, "%s has no key %s", what, quote(key.Value)).WithHint("it has %s", known)
		case seen[key.Value] != 0:
			return p.problem(key, "%s is set already in line %d", key.Value, seen[key.Value])
		case value.Kind == yaml.AliasNode || value.Anchor != "":
			return p.problem(value, "anchors and aliases are not supported").WithHint("write the value out")
		}
		seen[key.Value] = key.Line
		if err := read(value); err != nil {
			return err
		}
	}
	return nil
}

// scalar returns the text of one value as written.
func (p parser) scalar(n *yaml.Node, what string) (string, error) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return "", p.problem(n, "anchors and aliases are not supported").WithHint("write the value out")
	}
	if n.Kind != yaml.ScalarNode {
		return "", p.problem(n, "%s must be one value", what)
	}
	if isNull(n) || n.Value == "" {
		return "", p.problem(n, "%s has no value", what)
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return n.Value, nil
	}
	return "", p.problem(n, "%s has the tag %s, which is not supported", what, quote(n.Tag))
}

// list reads a list of values, or a single value. An empty list is an error: it would match nothing, but could be read
// as everything.
func (p parser) list(n *yaml.Node, what string, add func(string) error) error {
	entries := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		entries = n.Content
	}
	if len(entries) == 0 {
		return p.problem(n, "%s is empty, which matches nothing", what).WithHint("fill it, or remove the rule")
	}
	if len(entries) > maxEntries {
		return p.problem(n, "%s has %d entries; there may be %d", what, len(entries), maxEntries)
	}
	for _, entry := range entries {
		s, err := p.scalar(entry, what)
		if err != nil {
			return err
		}
		if err := add(s); err != nil {
			return p.wrap(entry, err)
		}
	}
	return nil
}

// listOf returns a reader of a list whose entries parse reads.
func listOf[T any](p parser, what string, parse func(string) (T, error), to *[]T) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return p.list(n, what, func(s string) error {
			entry, err := parse(s)
			*to = append(*to, entry)
			return err
		})
	}
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

func (p parser) rules(n *yaml.Node, d *Document) error {
	if n.Kind != yaml.SequenceNode {
		return p.problem(n, "rules must be a list").WithHint("without rules nothing is allowed: rules: []")
	}
	if len(n.Content) > maxRules {
		return p.problem(n, "there are %d rules; there may be %d", len(n.Content), maxRules)
	}
	for i, entry := range n.Content {
		if entry.Kind == yaml.AliasNode || entry.Anchor != "" {
			return p.problem(entry, "anchors and aliases are not supported").WithHint("write the rule out")
		}
		id := p.source + ":" + strconv.Itoa(entry.Line)
		if p.preset != "" {
			id = "preset " + p.preset + "#" + strconv.Itoa(i+1)
		}
		r, err := p.rule(entry, id)
		if err != nil {
			return err
		}
		d.Rules = append(d.Rules, r)
	}
	return nil
}

// ParseRule parses one rule of a document of another kind, such as a credential's binding. Errors: InvalidArgument with
// source and line.
func ParseRule(source string, n *yaml.Node) (Rule, error) {
	return parser{source: source}.rule(n, source+":"+strconv.Itoa(n.Line))
}

func (p parser) rule(n *yaml.Node, id string) (Rule, error) {
	r := Rule{ID: id, Action: Allow}
	var hosts []string
	depth := 0
	err := p.mapping(n, "a rule", map[string]func(*yaml.Node) error{
		"hosts": func(n *yaml.Node) error {
			return p.list(n, "hosts", func(s string) error { // the depth may follow in a later line; only syntax is checked here
				_, err := parsePattern(s, 1)
				hosts = append(hosts, s)
				return err
			})
		},
		"depth":        func(n *yaml.Node) error { return p.depth(n, &depth) },
		"cidrs":        listOf(p, "cidrs", parseCIDR, &r.cidrs),
		"ports":        listOf(p, "ports", parsePorts, &r.ports),
		"methods":      listOf(p, "methods", parseMethod, &r.methods),
		"paths":        listOf(p, "paths", parseGlob, &r.paths),
		"action":       func(n *yaml.Node) error { return p.action(n, &r.Action) },
		"pass_through": func(n *yaml.Node) error { return p.passThrough(n, &r.PassThrough) },
		"note":         func(n *yaml.Node) error { return p.note(n, &r.Note) },
	})
	if err != nil {
		return Rule{}, err
	}
	if err := r.setHosts(hosts, depth); err != nil {
		return Rule{}, p.wrap(n, err)
	}
	return r, p.wrap(n, r.check())
}

// setHosts sets r's hosts; depth 0 means unset.
func (r *Rule) setHosts(hosts []string, depth int) error {
	wildcards := false
	for _, s := range hosts {
		h, err := parsePattern(s, max(depth, 1))
		if err != nil {
			return err
		}
		wildcards = wildcards || h.depth > 0
		r.hosts = append(r.hosts, h)
	}
	if depth > 0 && !wildcards {
		return cove.Errorf(cove.InvalidArgument, "depth is for wildcards, and none of its hosts is one")
	}
	return nil
}

func (p parser) depth(n *yaml.Node, depth *int) error {
	s, err := p.scalar(n, "depth")
	if err != nil {
		return err
	}
	*depth, err = strconv.Atoi(s)
	if err != nil || *depth < 1 || *depth > maxDepth {
		return p.problem(n, "depth is the number of labels that * may stand for, 1 to %d", maxDepth)
	}
	return nil
}

func (p parser) action(n *yaml.Node, action *Action) error {
	s, err := p.scalar(n, "action")
	if err != nil {
		return err
	}
	for _, a := range []Action{Deny, Ask, Allow} {
		if a.String() == s {
			*action = a
			return nil
		}
	}
	return p.problem(n, "%s is no action", quote(s)).WithHint("it is allow, deny or ask")
}

func (p parser) passThrough(n *yaml.Node, on *bool) error {
	if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		return p.problem(n, "pass_through is true or false")
	}
	*on = n.Value == "true"
	return nil
}

func (p parser) note(n *yaml.Node, note *string) error {
	s, err := p.scalar(n, "note")
	if err == nil && len(s) > maxNote {
		return p.problem(n, "the note is longer than %d bytes", maxNote)
	}
	*note = s
	return err
}
