package policy

import (
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

// Table is a list of expectations of a policy.
type Table struct {
	Policies     []string // files of the policy's layers, as written
	Expectations []Expectation
}

// Expectation is one request and its expected verdict.
type Expectation struct {
	ID      string // "table.yaml:7"
	Request string // as written: "POST https://x.example/a"
	Action  Action
	Rule    string // empty: any

	judge func(*Policy) Verdict
}

// Judge returns p's verdict, and its difference from the expected one; "" if it is the same.
func (e Expectation) Judge(p *Policy) (v Verdict, differs string) {
	v = e.judge(p)
	switch {
	case v.Action != e.Action:
		return v, "it is " + v.Action.String() + " by " + v.Rule + ", expected " + e.Action.String()
	case e.Rule != "" && e.Rule != v.Rule:
		return v, "it is " + v.Action.String() + " by " + v.Rule + ", expected by " + e.Rule
	}
	return v, ""
}

// ParseTable reads a table of expectations in YAML. Errors: InvalidArgument with file and line.
func ParseTable(source string, data []byte) (*Table, error) {
	root, err := readYAML(source, data)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s expects nothing", source).WithHint("add tests:")
	}
	t, p := &Table{}, parser{source: source}
	err = p.mapping(root, "the table", map[string]func(*yaml.Node) error{
		"policies": listOf(p, "policies", asWritten, &t.Policies),
		"tests":    func(n *yaml.Node) error { return p.expectations(n, t) },
	})
	if err == nil && len(t.Expectations) == 0 {
		err = p.problem(root, "the table has no tests")
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (p parser) expectations(n *yaml.Node, t *Table) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) > maxRules {
		return p.problem(n, "tests must be a list of at most %d", maxRules)
	}
	for _, entry := range n.Content {
		e, err := p.expectation(entry)
		if err != nil {
			return err
		}
		t.Expectations = append(t.Expectations, e)
	}
	return nil
}

func (p parser) expectation(n *yaml.Node) (Expectation, error) {
	e := Expectation{ID: p.source + ":" + strconv.Itoa(n.Line)}
	kinds, stated := 0, false
	what := func(kind string, read func(string) (func(*Policy) Verdict, error)) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			s, err := p.scalar(n, kind)
			if err != nil {
				return err
			}
			kinds++
			e.Request = s
			if kind != "request" {
				e.Request = kind + " " + s
			}
			e.judge, err = read(s)
			return p.wrap(n, err)
		}
	}
	err := p.mapping(n, "a test", map[string]func(*yaml.Node) error{
		"request": what("request", readRequest),
		"lookup":  what("lookup", readLookup),
		"connect": what("connect", readConnect),
		"dial":    what("dial", readDial),
		"verdict": func(n *yaml.Node) error { stated = true; return valueOf(p, "action", parseAction, &e.Action)(n) },
		"rule":    valueOf(p, "rule", asWritten, &e.Rule),
	})
	switch {
	case err != nil:
		return Expectation{}, err
	case kinds != 1:
		return Expectation{}, p.problem(n, "a test has one of request, lookup, connect, dial")
	case !stated:
		return Expectation{}, p.problem(n, "the test expects no verdict").WithHint("add verdict: allow, deny or ask")
	}
	return e, nil
}

func readRequest(s string) (func(*Policy) Verdict, error) {
	method, raw, ok := strings.Cut(s, " ")
	if !ok {
		method, raw = "GET", s
	}
	u, err := ParseURL(strings.TrimSpace(raw))
	r := Request{Host: u.Host, Port: u.Port, Method: method, Path: u.Path}
	return func(p *Policy) Verdict { v, _ := p.Explain(r); return v }, err
}

func readLookup(s string) (func(*Policy) Verdict, error) {
	h, err := ParseHost(s)
	return decides(Request{Layer: LayerDNS, Host: h}), err
}

func readConnect(s string) (func(*Policy) Verdict, error) {
	h, port, err := ParseAuthority(s, 443)
	return decides(Request{Layer: LayerConnect, Host: h, Port: port}), err
}

func readDial(s string) (func(*Policy) Verdict, error) {
	authority, address, _ := strings.Cut(s, " ")
	h, port, err := ParseAuthority(authority, 443)
	if err != nil {
		return nil, err
	}
	a, err := netip.ParseAddr(strings.TrimSpace(address))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not HOST:PORT ADDRESS", quote(s))
	}
	return decides(Request{Layer: LayerDial, Host: h, Port: port, Address: a}), nil
}

func decides(r Request) func(*Policy) Verdict {
	return func(p *Policy) Verdict { return p.Decide(r) }
}
