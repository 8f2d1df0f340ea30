package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A small world in which rules and requests match often.
var (
	worldHosts = []string{"x.lab", "a.x.lab", "b.a.x.lab", "y.lab", "host.cove.internal", "198.51.100.7", "10.0.0.7",
		"64:ff9b::a00:7", "127.0.0.1", "169.254.169.254", "localhost"}
	worldPorts   = []uint16{22, 80, 443, 5432}
	worldMethods = []string{"GET", "POST"}
	worldPaths   = []string{"/", "/a", "/a/b", "/a%2Fb", "/c"}
	worldAddrs   = []string{"198.51.100.7", "10.0.0.7", "10.9.9.9", "127.0.0.1", "169.254.169.254", "fd00::1",
		"::ffff:10.0.0.7", "64:ff9b::a00:7", "192.0.2.77"}
	worldMachine = Machine{Own: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}
)

// worldRequests returns every request of the small world.
func worldRequests(t testing.TB) []Request {
	var all []Request
	for _, name := range worldHosts {
		h, err := ParseHost(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Request{Layer: LayerDNS, Host: h})
		for _, port := range worldPorts {
			all = append(all, Request{Layer: LayerConnect, Host: h, Port: port})
			for _, m := range worldMethods {
				for _, path := range worldPaths {
					all = append(all, Request{Layer: LayerHTTP, Host: h, Port: port, Method: m, Path: path})
				}
			}
			for _, a := range worldAddrs {
				all = append(all, Request{Layer: LayerDial, Host: h, Port: port, Address: netip.MustParseAddr(a)})
			}
		}
	}
	return all
}

func some(t *rapid.T, of []string, label string) string {
	return strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom(of), 1, 2, rapid.ID).Draw(t, label), ", ")
}

// ruleText generates a rule of the small world, in YAML.
func ruleText(t *rapid.T, actions ...string) string {
	action := rapid.SampledFrom(actions).Draw(t, "action")
	var b strings.Builder
	byAddress, service := rapid.Bool().Draw(t, "by address"), false
	if byAddress {
		fmt.Fprintf(&b, "- cidrs: [%s]\n", some(t, []string{"198.51.100.0/24", "10.0.0.0/8", "10.0.0.7", "0.0.0.0/0",
			`"64:ff9b::/96"`, `"::/0"`, "192.0.2.77"}, "cidrs"))
	} else {
		hosts := some(t, []string{"x.lab", "a.x.lab", "y.lab", `"*.x.lab"`, `"*.lab"`, `"*.internal"`, "host.cove.internal"},
			"hosts")
		service = strings.Contains(hosts, "host.cove")
		fmt.Fprintf(&b, "- hosts: [%s]\n", hosts)
		if strings.Contains(hosts, "*") {
			fmt.Fprintf(&b, "  depth: %d\n", rapid.IntRange(1, 3).Draw(t, "depth"))
		}
	}
	if service {
		fmt.Fprintf(&b, "  ports: [%s]\n", some(t, []string{"22", "80", "443", "5432"}, "service ports"))
	} else if rapid.Bool().Draw(t, "has ports") {
		fmt.Fprintf(&b, "  ports: [%s]\n", some(t, []string{"22", "80", "443", "5432", "1-100", "1-65535"}, "ports"))
	}
	through := action != "deny" && rapid.Bool().Draw(t, "through")
	if through {
		b.WriteString("  pass_through: true\n")
	}
	if !through && !(byAddress && action == "deny") {
		if rapid.Bool().Draw(t, "has methods") {
			fmt.Fprintf(&b, "  methods: [%s]\n", some(t, worldMethods, "methods"))
		}
		if rapid.Bool().Draw(t, "has paths") {
			fmt.Fprintf(&b, "  paths: [%s]\n", some(t, []string{"/", "/a", "/a/*", "/*/b", "/**", "/a%2Fb"}, "paths"))
		}
	}
	return b.String() + "  action: " + action + "\n"
}

func worldDocument(t *rapid.T, label string, actions ...string) *Document {
	text := "rules:\n"
	n := rapid.IntRange(0, 5).Draw(t, label+" rules")
	for range n {
		text += ruleText(t, actions...)
	}
	if n == 0 {
		text = "rules: []\n"
	}
	if mode := rapid.SampledFrom([]string{"", "", "", "limited", "host-only", "open", "none"}).Draw(t,
		label+" mode"); mode != "" {
		text += "mode: " + mode + "\n"
		if rapid.IntRange(0, 3).Draw(t, label+" replace") == 0 {
			text += "merge: replace\n"
		}
	}
	d, err := Parse(label, []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return d
}

func compiled(t *rapid.T, layers ...*Document) *Policy {
	p, err := Compile(worldMachine, layers...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// narrower fails if after allows more than before did.
func narrower(t *rapid.T, requests []Request, before, after *Policy) {
	for _, r := range requests {
		b, a := before.Decide(r), after.Decide(r)
		if a.Action > b.Action {
			t.Fatalf("%v %v:%d %s %s %v: %s by %s became %s by %s\nbefore:\n%safter:\n%s", r.Layer, r.Host, r.Port, r.Method,
				r.Path, r.Address, b.Action, b.Rule, a.Action, a.Rule, before, after)
		}
	}
}

// TestRemovingARuleNeverAddsReach covers rules that allow or ask, in every mode except open, where asking narrows.
func TestRemovingARuleNeverAddsReach(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		d := worldDocument(t, "a", "allow", "ask", "deny")
		before := compiled(t, d)
		for i, r := range d.Rules {
			if r.Action == Deny || r.Action == Ask && d.Mode == "open" {
				continue
			}
			less := *d
			less.Rules = slices.Delete(slices.Clone(d.Rules), i, i+1)
			narrower(t, requests, before, compiled(t, &less))
		}
	})
}

// TestMergingADenialNeverAddsReach adds a layer that only denies, at any position.
func TestMergingADenialNeverAddsReach(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := worldDocument(t, "a", "allow", "ask", "deny"), worldDocument(t, "b", "allow", "ask", "deny")
		denials := worldDocument(t, "denials", "deny")
		denials.Mode, denials.Replace = "", false
		before := compiled(t, a, b)
		narrower(t, requests, before, compiled(t, a, b, denials))
		narrower(t, requests, before, compiled(t, a, denials, b))
		narrower(t, requests, before, compiled(t, denials, a, b))
	})
}

// TestReplacingNeverAddsReach: a replacing layer allows no more than it would alone, and never what an earlier one
// denies.
func TestReplacingNeverAddsReach(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := worldDocument(t, "a", "allow", "ask", "deny"), worldDocument(t, "b", "allow", "ask", "deny")
		b.Replace, b.Mode = true, "limited"
		narrower(t, requests, compiled(t, b), compiled(t, a, b))
	})
}

// TestOrderNeverMatters permutes the rules of a document.
func TestOrderNeverMatters(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		d := worldDocument(t, "a", "allow", "ask", "deny")
		turned := *d
		turned.Rules = slices.Clone(d.Rules)
		slices.Reverse(turned.Rules)
		a, b := compiled(t, d), compiled(t, &turned)
		for _, r := range requests {
			if x, y := a.Decide(r), b.Decide(r); x.Action != y.Action || x.PassThrough != y.PassThrough || x.Asks != y.Asks {
				t.Fatalf("%+v: %+v and %+v\n%s", r, x, y, a)
			}
		}
	})
}

// TestLayersAgree: an allowed inner layer implies an allowed outer one, so that no request is allowed that could not
// get so far. No request passes through that an inner layer would deny.
func TestLayersAgree(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, worldDocument(t, "a", "allow", "ask", "deny"), worldDocument(t, "b", "allow", "ask", "deny"))
		for _, r := range requests {
			v := p.Decide(r)
			outer := r
			switch r.Layer {
			case LayerHTTP, LayerDial:
				outer.Layer = LayerConnect
			case LayerConnect:
				if r.Host.Name() == "" {
					continue
				}
				outer.Layer = LayerDNS
			default:
				continue
			}
			o := p.Decide(outer)
			if v.Action > o.Action {
				t.Fatalf("%+v: %+v, though %v: %+v\n%s", r, v, outer.Layer, o, p)
			}
			if r.Layer == LayerHTTP && o.PassThrough && v.Action < o.Action {
				t.Fatalf("%+v: %+v, but the connection passes through: %+v\n%s", r, v, o, p)
			}
		}
	})
}

// TestNothingOpensTheMachine: loopback, cloud metadata and the machine's own address under a wide range stay closed,
// whatever the rules.
func TestNothingOpensTheMachine(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, worldDocument(t, "a", "allow", "ask"), worldDocument(t, "b", "allow", "ask"))
		for _, r := range requests {
			a := r.Address.Unmap()
			if r.Layer != LayerDial {
				a = r.Host.addr
			}
			closed := a.IsValid() && (a.IsLoopback() && r.Host.Name() != HostService || metadata(a)) ||
				r.Host.Name() == "localhost"
			if v := p.Decide(r); closed && v.Action != Deny {
				t.Fatalf("%+v: %+v\n%s", r, v, p)
			}
		}
	})
}

// String returns p's rules, one a line, for failure messages.
func (p *Policy) String() string {
	var b strings.Builder
	b.WriteString("mode " + string(p.Mode()) + "\n")
	if p == nil {
		return b.String()
	}
	for _, rules := range [][]*Rule{p.deny, p.allow, p.ask} {
		for _, r := range rules {
			b.WriteString(r.Action.String() + " " + r.describe() + "  # " + r.ID + "\n")
		}
	}
	return b.String()
}

// TestWholeAllowsEverything: no request in a whole connection is refused or asked about. An allowed connection that is
// not whole has a rule about a part of it.
func TestWholeAllowsEverything(t *testing.T) {
	requests := worldRequests(t)
	rapid.Check(t, func(t *rapid.T) {
		p := compiled(t, worldDocument(t, "a", "allow", "ask", "deny"), worldDocument(t, "b", "allow", "ask", "deny"))
		whole := map[Request]bool{}
		for _, r := range requests {
			if r.Layer == LayerConnect {
				v := p.Decide(r)
				if whole[r] = v.Whole; v.Whole && v.Action != Allow {
					t.Fatalf("%v:%d: %+v", r.Host, r.Port, v)
				}
			}
		}
		for _, r := range requests {
			connection := Request{Layer: LayerConnect, Host: r.Host, Port: r.Port}
			if v := p.Decide(r); r.Layer == LayerHTTP && whole[connection] && v.Action != Allow {
				t.Fatalf("%v:%d %s %s: %+v\n%s", r.Host, r.Port, r.Method, r.Path, v, p)
			}
		}
	})
}
