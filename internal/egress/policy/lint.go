package policy

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Severity distinguishes mistakes from notes.
type Severity string

const (
	Warning Severity = "warning" // wider than it looks, or without effect
	Note    Severity = "note"    // probably intended, and worth knowing
)

// Finding is a remark of Check on one rule, or on the whole policy.
type Finding struct {
	Severity Severity `json:"severity"`
	// broad-wildcard, broad-range, broad-ports, protocol, open, unreachable, redundant, write-capable, unseen, address
	Kind    string `json:"kind"`
	Rule    string `json:"rule"` // its ID, or "mode"
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

const (
	manyPorts   = 1000 // of one rule
	broadV4     = 16   // bits; a shorter prefix is broad
	broadV6     = 32
	deepEnough  = 3 // labels of a wildcard
	writeMethod = "POST PUT PATCH DELETE"
)

// Check compiles documents as Compile does and reports suspicious parts. Its errors are those of Compile.
func Check(m Machine, layers ...*Document) ([]Finding, error) {
	p, err := Compile(m, layers...)
	if err != nil {
		return nil, err
	}
	var all []Finding
	if p.mode == cove.NetworkOpen {
		all = append(all, Finding{Warning, "open", "mode", "every name and every public address can be reached",
			"mode: limited, with rules for what is needed"})
	}
	for i := range p.deny {
		all = append(all, p.uselessDenial(i)...)
	}
	for _, rules := range [][]*Rule{p.allow, p.ask} {
		for i := range rules {
			all = append(all, p.checkRule(rules, i)...)
		}
	}
	for i := range p.git {
		all = append(all, checkGit(p, &p.git[i])...)
	}
	return all, nil
}

func checkGit(p *Policy, g *GitRule) (all []Finding) {
	add := func(s Severity, kind, message, hint string) { all = append(all, Finding{s, kind, g.ID, message, hint}) }
	path := g.Remote.Path
	if g.Remote.Below {
		path += "/repository"
	}
	denied := func(method, service string) bool {
		ask := func(path string) Action {
			v, _ := p.Explain(Request{Host: g.Remote.Host, Port: g.Remote.Port, Method: method, Path: path + service})
			return v.Action
		}
		return ask(path) == Deny && ask(path+".git") == Deny
	}
	made := g.policy()
	if denied("GET", "/info/refs") {
		add(Warning, "unreachable", "no rule lets git reach "+g.Remote.String(),
			"a rule for its host, with the methods GET and POST")
	} else if !made.ReadOnly() && denied("POST", "/git-receive-pack") {
		add(Warning, "unreachable", "no rule lets git push to "+g.Remote.String(),
			"a rule for its host, with the method POST")
	}
	if v := p.Decide(Request{Layer: LayerConnect, Host: g.Remote.Host, Port: g.Remote.Port}); v.PassThrough {
		add(Warning, "unseen", v.Rule+" passes connections to "+g.Remote.Host.String()+
			" through, and they are refused where git is judged", "remove pass_through")
	}
	if made.Force == git.Allow {
		add(Note, "write-capable", "pushes may leave commits behind (force)", "force: ask")
	}
	if len(made.Block) == 0 {
		add(Note, "write-capable", "pushes may change files that decide what others run, such as CI workflows",
			"remove defaults: false")
	}
	return all
}

func (p *Policy) uselessDenial(i int) []Finding {
	r := p.deny[i]
	for j, other := range p.deny {
		if i != j && other.covers(r) && !(j > i && r.covers(other)) {
			return []Finding{{Warning, "redundant", r.ID, other.ID + " denies all of it", "remove it"}}
		}
	}
	return nil
}

// checkRule reports on the rule i of peers, which have one action.
func (p *Policy) checkRule(peers []*Rule, i int) []Finding {
	r := peers[i]
	if f, found := p.without(r, peers, i); found {
		return []Finding{f} // the other findings do not matter then
	}
	all := r.breadth()
	switch {
	case r.PassThrough:
		all = append(all, Finding{Note, "unseen", r.ID,
			"what passes through is not looked into: any method and path, no credentials, data can leave by it", ""})
	case r.writes():
		targets := append(texts(r.hosts, pattern.String), texts(r.cidrs, netip.Prefix.String)...)
		all = append(all, Finding{Note, "write-capable", r.ID, strings.Join(targets, ", ") + ": data can leave by it",
			"methods: [GET, HEAD] for reading only"})
	}
	return all
}

func (p *Policy) without(r *Rule, peers []*Rule, i int) (Finding, bool) {
	none := func(kind, why, hint string) (Finding, bool) { return Finding{Warning, kind, r.ID, why, hint}, true }
	switch {
	case p.mode == cove.NetworkNone:
		return none("unreachable", "in mode none no rule has an effect", "mode: limited")
	case p.mode == cove.NetworkHostOnly && !r.onlyHostService():
		return none("unreachable", "in mode host-only only rules for "+HostService+" have an effect", "mode: limited")
	}
	for _, d := range p.deny {
		if d.covers(r) {
			return none("unreachable", d.ID+" denies all of it, and a denial wins", "remove one of them")
		}
	}
	for _, a := range p.allow {
		if r.Action == Ask && a.covers(r) {
			return none("unreachable", a.ID+" allows all of it without asking", "remove one of them")
		}
	}
	for j, other := range peers {
		if j != i && other.covers(r) && other.PassThrough == r.PassThrough && !(j > i && r.covers(other)) {
			return none("redundant", other.ID+" already says all of it", "remove it")
		}
	}
	return Finding{}, false
}

// breadth reports parts that are wider than they look.
func (r *Rule) breadth() []Finding {
	var all []Finding
	add := func(s Severity, kind, message, hint string) { all = append(all, Finding{s, kind, r.ID, message, hint}) }
	for _, h := range r.hosts {
		suffix := strings.TrimPrefix(h.name, ".")
		if public, _ := publicsuffix.PublicSuffix(suffix); h.depth > 0 && public == suffix {
			add(Warning, "broad-wildcard", h.String()+" has names of many owners",
				"name the hosts, or the domain of one owner")
		} else if h.depth >= deepEnough {
			add(Note, "broad-wildcard", h.String()+" may have many labels, and labels of a lookup carry data out",
				"a smaller depth")
		}
	}
	for _, c := range r.cidrs {
		if c.Addr().Is4() && c.Bits() < broadV4 || c.Addr().Is6() && c.Bits() < broadV6 {
			add(Warning, "broad-range", c.String()+" is wide", "name the range that is needed")
		}
		switch _, special := overlapsSpecial(c); {
		case special && wide(c):
			add(Warning, "address", c.String()+" is wider than the private and other reserved ranges in it, and opens public "+
				"addresses only", "a cidr within the reserved range, as 10.0.0.0/8")
		case special:
			add(Note, "address", c.String()+" is private or special, and opened to every name that may use these ports", "")
		default:
			add(Note, "address", c.String()+" may later belong to another host", "a rule by hosts, if it has a name")
		}
	}
	ports := 0
	for _, ranges := range r.reach() {
		ports += int(ranges.high) - int(ranges.low) + 1
	}
	for _, port := range otherProtocols {
		if r.ports != nil && hasPort(r.ports, port) && ports <= manyPorts && !r.PassThrough && !r.inner() {
			add(Note, "protocol", "port "+portRange{port, port}.String()+
				" seldom speaks HTTP or TLS, and nothing else is let through", "pass_through: true")
		}
	}
	if ports > manyPorts {
		add(Warning, "broad-ports", "it opens "+portCount(ports), "name the ports that are needed")
	}
	return all
}

// otherProtocols are ports of mail, shells, databases and queues.
var otherProtocols = []uint16{21, 22, 25, 110, 143, 389, 587, 1433, 1521, 3306, 5432, 5672, 6379, 11211, 27017}

func portCount(n int) string {
	if n >= 65535 {
		return "every port"
	}
	return "more than a thousand ports"
}

// writes reports whether r allows requests with a body.
func (r *Rule) writes() bool {
	return r.methods == nil || slices.ContainsFunc(r.methods, func(m string) bool {
		return slices.Contains(strings.Fields(writeMethod), m)
	})
}

func (r *Rule) onlyHostService() bool {
	return len(r.hosts) > 0 && !slices.ContainsFunc(r.hosts, func(h pattern) bool { return h.name != HostService })
}

// covers reports whether r covers everything that s does. It may miss that several parts of r together do.
func (r *Rule) covers(s *Rule) bool {
	for _, h := range s.hosts {
		if !slices.ContainsFunc(r.hosts, func(p pattern) bool { return p.covers(h) }) {
			return false
		}
	}
	for _, c := range s.cidrs {
		if !slices.ContainsFunc(r.cidrs, func(p netip.Prefix) bool { return within(p, c) }) {
			return false
		}
	}
	return coversPorts(r.reach(), s.reach()) && r.coversMethods(s) && r.coversPaths(s)
}

func (r *Rule) coversMethods(s *Rule) bool {
	return r.methods == nil || s.methods != nil && !slices.ContainsFunc(s.methods, func(m string) bool {
		return !r.hasMethod(m)
	})
}

func (r *Rule) coversPaths(s *Rule) bool {
	every := func(g glob) bool { return g.text == "/**" }
	if r.paths == nil || slices.ContainsFunc(r.paths, every) {
		return true
	}
	return s.paths != nil && !slices.ContainsFunc(s.paths, func(want glob) bool {
		return !slices.ContainsFunc(r.paths, func(g glob) bool { return g.text == want.text })
	})
}
