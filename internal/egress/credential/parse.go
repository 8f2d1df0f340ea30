package credential

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/pattern"
)

//go:embed presets.yaml
var presets []byte

// Presets returns Cove's built-in credentials.
func Presets() ([]Credential, error) {
	all, err := parsePresets()
	return slices.Clone(all), err
}

var parsePresets = sync.OnceValues(func() ([]Credential, error) { return Parse("presets.yaml", presets) })

// Choose returns credentials by name, first from own and then from the presets. Errors: NotFound.
func Choose(own []Credential, names ...string) ([]Credential, error) {
	all, err := Presets()
	if err != nil {
		return nil, err
	}
	all = slices.Concat(own, all)
	var chosen []Credential
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Credential) bool { return c.Name == name })
		if i < 0 {
			var known []string
			for _, c := range all {
				known = append(known, c.Name)
			}
			slices.Sort(known)
			return nil, cove.Errorf(cove.NotFound, "there is no credential %s", repeatable(name)).WithHint("there are %s",
				strings.Join(slices.Compact(known), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// repeatable quotes a name that was asked for, unless it may be a key in the place of a name.
func repeatable(name string) string {
	const shortestKey = 25 // characters of lower case: those of services have 32 and more
	if len(name) < shortestKey && credentialName.MatchString(name) {
		return strconv.Quote(name)
	}
	return "of that name, which may be a key"
}

// entry is the YAML form of a credential.
type entry struct {
	Name      text        `yaml:"name"`
	Source    words       `yaml:"source"`
	Variables words       `yaml:"variables"`
	Shape     text        `yaml:"shape"`
	To        []yaml.Node `yaml:"to"`
	Or        []entry     `yaml:"or"`
}

// text is one value and its line.
type text struct {
	s    string
	line int
}

func (t *text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Anchor != "" || n.Tag == "!!null" || n.Value == "" {
		return at(n.Line, "here belongs one value, without anchors and aliases")
	}
	t.s, t.line = n.Value, n.Line
	return nil
}

// words is a list of values, or a single one.
type words struct {
	all  []string
	list bool
	line int
}

func (w *words) UnmarshalYAML(n *yaml.Node) error {
	w.line, w.list = n.Line, n.Kind == yaml.SequenceNode
	nodes := []*yaml.Node{n}
	if w.list {
		nodes = n.Content
	}
	for _, n := range nodes {
		var t text
		if err := t.UnmarshalYAML(n); err != nil {
			return err
		}
		w.all = append(w.all, t.s)
	}
	return nil
}

type placed struct {
	line int
	err  *cove.Error
}

func (p *placed) Error() string { return p.err.Error() }

func at(line int, format string, args ...any) error {
	return &placed{line, cove.Errorf(cove.InvalidArgument, format, args...)}
}

// Parse parses credentials in YAML, strictly:
//
//	credentials:
//	  - name: tracker                    # for --credential
//	    source: env:TRACKER_TOKEN        # or file:/PATH, command:PROGRAM ARGUMENTS,
//	                                     # [command, PROGRAM, ARGUMENT], git-credential, gh, claude, aws
//	    variables: TRACKER_TOKEN         # hold a placeholder inside
//	    shape: trk_{24}                  # of the placeholder
//	    to:                              # bindings: rules as in a policy, each with a form; without them the
//	                                     # credential is for the model providers that name it (BoundTo)
//	      - hosts: tracker.example.com
//	        ports: 443
//	        methods: [GET, POST]
//	        paths: /api/**
//	        form: header                 # or bearer; basic (user); query (parameter)
//	        header: X-Tracker-Key
//	        template: "Key {}"           # {} is the value; default {}
//	        strip: session               # further headers and parameters that authenticate
//	        also: "X-Features: tokens"   # a required element of a list header
//	    or:                              # alternatives for a source without a value, in order
//	      - source: file:/PATH           # with its own variables, shape and to
//	        to: [...]
//
// Messages never repeat a value of the document, which may be a secret by mistake. Errors: InvalidArgument with source
// and line.
func Parse(source string, data []byte) ([]Credential, error) {
	var doc struct {
		Credentials []entry `yaml:"credentials"`
	}
	if err := policy.Decode(source, data, &doc); err != nil {
		return nil, inPlace(source, err)
	}
	var all []Credential
	for _, e := range doc.Credentials {
		c, err := e.credential(source)
		if err != nil {
			return nil, inPlace(source, err)
		}
		if slices.ContainsFunc(all, func(other Credential) bool { return other.Name == c.Name }) {
			return nil, inPlace(source, at(e.Name.line, "there are two credentials of the name %s", c.Name))
		}
		all = append(all, c)
	}
	return all, nil
}

var (
	yamlLine  = pattern.New(`line ([0-9]+): (.*)`)
	unknown   = pattern.New(`^field (.{1,60}?) not found in type `)
	duplicate = pattern.New(`already defined at line ([0-9]+)$`)
)

// inPlace adds source and line to an error, and removes possible values from yaml's messages.
func inPlace(source string, err error) error {
	if p, ok := errors.AsType[*placed](err); ok {
		e := cove.Errorf(p.err.Code, "%s:%d: %s", source, p.line, p.err.Message)
		e.Hint = p.err.Hint
		return e
	}
	if e, ok := errors.AsType[*cove.Error](err); ok {
		return e
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return cove.Errorf(cove.InvalidArgument, "%s is not YAML", source)
	}
	what := "this cannot be read"
	if u := unknown.FindStringSubmatch(m[2]); u != nil {
		what = fmt.Sprintf("there is no key %q here", u[1])
	} else if d := duplicate.FindStringSubmatch(m[2]); d != nil {
		what = "this is set already in line " + d[1]
	}
	return cove.Errorf(cove.InvalidArgument, "%s:%s: %s", source, m[1], what).
		WithHint("a credential has name, source, variables, shape, to and or")
}

var credentialName = pattern.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (e entry) credential(source string) (Credential, error) {
	c := Credential{Name: e.Name.s, Variables: e.Variables.all, Shape: defaultShape}
	if !credentialName.MatchString(c.Name) {
		return c, at(cmp.Or(e.Name.line, e.Source.line, 1),
			"a credential has a name, of small letters, digits, hyphens, dots and underscores")
	}
	var err error
	if c.Source, err = e.Source.source(); err != nil {
		return c, e.Source.wrap(err)
	}
	for _, v := range c.Variables {
		if !variableName.MatchString(v) {
			return c, at(e.Variables.line, "this is no name of a variable")
		}
	}
	if e.Shape.s != "" {
		c.Shape = e.Shape.s
		if err := checkShape(c.Shape); err != nil {
			return c, words{line: e.Shape.line}.wrap(err)
		}
	}
	for i := range e.To {
		b, err := bind(source, &e.To[i], c.Source)
		if err != nil {
			return c, err
		}
		c.Bindings = append(c.Bindings, b)
	}
	for _, other := range e.Or {
		if other.Name.s != "" || len(other.Or) > 0 {
			return c, at(cmp.Or(other.Name.line, e.Name.line), "an entry of or has neither a name nor an or of its own")
		}
		other.Name = e.Name
		w, err := other.credential(source)
		if err != nil {
			return c, err
		}
		c.Or = append(c.Or, w)
	}
	for _, w := range c.ways() {
		if len(w.Bindings) == 0 != c.Unbound() {
			return c, at(e.Name.line, "%s has to where it is bound, or its alternatives do; all of them need one, or none",
				c.Name)
		}
	}
	return c, nil
}

func (w words) source() (Source, error) {
	switch {
	case len(w.all) == 0:
		return Source{}, cove.Errorf(cove.InvalidArgument, "there is no source").WithHint(sourceHint)
	case !w.list:
		return ParseSource(w.all[0])
	case w.all[0] != string(fromCommand):
		return Source{}, cove.Errorf(cove.InvalidArgument,
			"a list is a command").WithHint("source: [command, PROGRAM, ARGUMENT]")
	}
	return command(w.all[1:])
}

func (w words) wrap(err error) error {
	if e, ok := errors.AsType[*cove.Error](err); ok {
		return &placed{cmp.Or(w.line, 1), e}
	}
	return err
}

// formKeys are the keys of a binding that a policy's rule does not have.
var formKeys = []string{"form", "header", "template", "user", "parameter", "strip", "also"}

// bind parses one entry of to: a rule and a form.
func bind(source string, n *yaml.Node, from Source) (Binding, error) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		return Binding{}, at(n.Line, "an entry of to is a mapping, without anchors and aliases")
	}
	rule := *n
	rule.Content = nil
	form := map[string]words{}
	b := Binding{ID: source + ":" + strconv.Itoa(n.Line)}
	var hosts, ports words
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if slices.Contains(formKeys, key.Value) {
			var w words
			if err := w.UnmarshalYAML(value); err != nil {
				return b, err
			}
			if _, twice := form[key.Value]; twice {
				return b, at(key.Line, "%s is set twice", key.Value)
			}
			form[key.Value] = w
			continue
		}
		rule.Content = append(rule.Content, key, value)
		switch key.Value { // invalid values are refused below
		case "hosts":
			_ = hosts.UnmarshalYAML(value)
		case "ports":
			_ = ports.UnmarshalYAML(value)
		case "action", "pass_through":
			return b, at(key.Line, "a credential is bound to what policy allows; there is no %s here", key.Value)
		}
	}
	parsed, err := policy.ParseRule(source, &rule)
	if err != nil {
		return b, err
	}
	if b.where, err = policy.Compile(policy.Machine{},
		&policy.Document{Mode: cove.NetworkLimited, Rules: []policy.Rule{parsed}}); err != nil {
		return b, err
	}
	if b.probes, err = probes(hosts, ports, from); err != nil {
		return b, err
	}
	if b.Form, err = readForm(n.Line, form); err != nil {
		return b, err
	}
	if b.Form.basic && b.Form.user == "" && from.kind != fromGit {
		return b, at(n.Line, "the form basic needs a user, which %s does not tell", from)
	}
	return b, nil
}

// probes returns requests that a binding covers, for Check.
func probes(hosts, ports words, from Source) (all []probe, err error) {
	if len(ports.all) == 0 {
		ports.all = []string{"443"}
	}
	for _, h := range hosts.all {
		name, wildcard := strings.CutPrefix(h, "*.")
		if wildcard && (from.kind == fromGit || from.kind == fromGH) {
			return nil, at(hosts.line, "%s is asked host by host, and cannot be bound to *", from)
		}
		if wildcard {
			name = "any." + name
		}
		host, err := policy.ParseHost(name)
		if err != nil {
			return nil, hosts.wrap(err)
		}
		for _, p := range ports.all {
			low, _, _ := strings.Cut(p, "-")
			port, err := policy.ParsePort(low)
			if err != nil {
				return nil, ports.wrap(err)
			}
			all = append(all, probe{host, port})
		}
	}
	return all, nil
}

func readForm(line int, keys map[string]words) (Form, error) {
	one := func(key string) string {
		if w := keys[key]; len(w.all) == 1 && !w.list {
			return w.all[0]
		}
		return ""
	}
	wants := map[string][]string{"bearer": {}, "header": {"header", "template"}, "basic": {"user"}, "query": {"parameter"}}
	takes, known := wants[one("form")]
	if !known {
		return Form{}, at(cmp.Or(keys["form"].line, line), "form is bearer, header, basic or query")
	}
	for key, w := range keys {
		if key != "form" && key != "strip" && key != "also" && (!slices.Contains(takes, key) || one(key) == "") {
			return Form{}, at(w.line, "%s does not belong to the form %s, or is not one value", key, one("form"))
		}
	}
	var f Form
	var err error
	switch one("form") {
	case "bearer":
		f = Bearer()
	case "header":
		f, err = headerForm(one("header"), one("template"))
	case "basic":
		f, err = basicForm(one("user"))
	case "query":
		f, err = queryForm(one("parameter"))
	}
	f.others = keys["strip"].all
	if _, said := keys["also"]; said && err == nil {
		f, err = alsoForm(f, one("also"))
	}
	return f, words{line: line}.wrap(err)
}
