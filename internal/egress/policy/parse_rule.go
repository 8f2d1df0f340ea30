package policy

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

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

// ParseRule parses a rule in another kind of document, as of a credential. Errors: InvalidArgument, with the place.
func ParseRule(source string, n *yaml.Node) (Rule, error) {
	return parser{source: source}.rule(n, source+":"+strconv.Itoa(n.Line))
}

func (p parser) rule(n *yaml.Node, id string) (Rule, error) {
	r := Rule{ID: id, Action: Allow}
	var hosts []string
	depth := 0
	err := p.mapping(n, "a rule", map[string]func(*yaml.Node) error{
		"hosts": listOf(p, "hosts", func(s string) (string, error) { // the depth may follow; only syntax is checked here
			_, err := parsePattern(s, 1)
			return s, err
		}, &hosts),
		"depth":        valueOf(p, "depth", parseDepth, &depth),
		"cidrs":        listOf(p, "cidrs", parseCIDR, &r.cidrs),
		"ports":        listOf(p, "ports", parsePorts, &r.ports),
		"methods":      listOf(p, "methods", parseMethod, &r.methods),
		"paths":        listOf(p, "paths", parseGlob, &r.paths),
		"action":       valueOf(p, "action", parseAction, &r.Action),
		"pass_through": func(n *yaml.Node) (err error) { r.PassThrough, err = p.boolean(n, "pass_through"); return err },
		"note":         valueOf(p, "note", parseNote, &r.Note),
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

func parseDepth(s string) (int, error) {
	depth, err := strconv.Atoi(s)
	if err != nil || depth < 1 || depth > maxDepth {
		return 0, cove.Errorf(cove.InvalidArgument, "depth is the number of labels that * may stand for, 1 to %d", maxDepth)
	}
	return depth, nil
}

func parseAction(s string) (Action, error) {
	for _, a := range []Action{Deny, Ask, Allow} {
		if a.String() == s {
			return a, nil
		}
	}
	return Deny, cove.Errorf(cove.InvalidArgument, "%s is no action", quote(s)).WithHint("it is allow, deny or ask")
}

func parseNote(s string) (string, error) {
	if len(s) > maxNote {
		return "", cove.Errorf(cove.InvalidArgument, "the note is longer than %d bytes", maxNote)
	}
	return s, nil
}
