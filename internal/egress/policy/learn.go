package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

const learnedPaths = 10 // bounds the paths of one host in a proposal; more become a common prefix

// Attempt is an attempted request, and its count.
type Attempt struct {
	Request
	Times       int64
	Denied      bool
	PassThrough bool // of LayerConnect: the connection is to be passed through
}

// Propose returns the smallest readable policy that allows the attempts: each host by name, with the ports, methods and
// paths that were seen. Parts of paths that look like ids become "*"; many paths become one pattern. A name whose
// lookup was denied, without any later attempt, is allowed by HTTP and HTTPS. Other lookups propose nothing, nor do
// attempts that no rule can allow. A comment above each rule counts its attempts and lists some.
func Propose(tried []Attempt) *Document {
	d := &Document{Source: "proposal", Mode: cove.NetworkLimited}
	seen := collect(tried)
	byText := func(a, b Host) int { return cmp.Compare(a.String(), b.String()) }
	for _, h := range slices.SortedFunc(maps.Keys(seen.hosts), byText) {
		d.Rules = append(d.Rules, seen.hosts[h].rules(h)...)
	}
	d.Rules = append(joinHosts(d.Rules), seen.reserved()...)
	for i := range d.Rules {
		d.Rules[i].comment = d.Rules[i].tally(tried)
	}
	return d
}

type habits struct {
	ports   map[uint16]bool     // connected to, without requests; true: to be passed through
	methods map[string][]string // "METHOD PORT" to paths
	inside  map[uint16]bool     // ports with requests
}

type observations struct {
	hosts map[Host]*habits
	dials []Request // to reserved addresses
}

func collect(tried []Attempt) *observations {
	o := &observations{hosts: map[Host]*habits{}}
	for _, t := range tried {
		r := t.Request
		r.Address = r.Address.Unmap()
		if malformed(r) != "" || r.Layer == LayerDNS && (!t.Denied || r.Host.name == HostService) ||
			closedName(r.Host.name) != "" || closedAddress(r.Host.addr) {
			continue
		}
		if _, reserved := Reserved(r.Address); r.Layer == LayerDial && reserved && r.Host.name != "" &&
			r.Host.name != HostService && !closedAddress(r.Address) {
			o.dials = append(o.dials, r)
		}
		h := o.hosts[r.Host]
		if h == nil {
			h = &habits{ports: map[uint16]bool{}, methods: map[string][]string{}, inside: map[uint16]bool{}}
			o.hosts[r.Host] = h
		}
		switch r.Layer {
		case LayerDNS:
			continue
		case LayerConnect, LayerDial:
			h.ports[r.Port] = h.ports[r.Port] || t.PassThrough
			continue
		}
		h.inside[r.Port] = true
		key := r.Method + " " + portRange{r.Port, r.Port}.String()
		h.methods[key] = append(h.methods[key], r.Path)
	}
	return o
}

// rules returns the rules of one host: one for each set of methods and paths.
func (h *habits) rules(host Host) []Rule {
	var all []Rule
	if len(h.ports)+len(h.inside) == 0 {
		all = append(all, Rule{}) // the default ports of a rule
	}
	for _, port := range slices.Sorted(maps.Keys(h.ports)) {
		if !h.inside[port] {
			all = appendRule(all, Rule{ports: []portRange{{port, port}}, PassThrough: h.ports[port]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.methods)) {
		method, port, _ := strings.Cut(key, " ")
		ports, err := parsePorts(port)
		if err != nil {
			continue // it was listed as a port before
		}
		all = appendRule(all, Rule{ports: []portRange{ports}, methods: []string{method}, paths: patterns(h.methods[key])})
	}
	for i := range all {
		all[i].Action = Allow
		all[i].setHost(host)
	}
	return all
}

// appendRule adds r, or extends a rule that differs only in its ports or only in its methods.
func appendRule(all []Rule, r Rule) []Rule {
	for i := range all {
		a := &all[i]
		if !slices.EqualFunc(a.paths, r.paths, sameGlob) || (a.methods == nil) != (r.methods == nil) ||
			a.PassThrough != r.PassThrough {
			continue
		}
		switch {
		case slices.Equal(a.ports, r.ports):
			a.methods = append(a.methods, r.methods...)
			return all
		case slices.Equal(a.methods, r.methods):
			a.ports = append(a.ports, r.ports...)
			return all
		}
	}
	return append(all, r)
}

func sameGlob(a, b glob) bool { return a.text == b.text }

// joinHosts merges rules that differ only in their host.
func joinHosts(rules []Rule) []Rule {
	var all []Rule
	for _, r := range rules {
		i := slices.IndexFunc(all, func(a Rule) bool {
			return len(r.hosts) > 0 && len(a.hosts) > 0 && r.hosts[0].name != HostService && a.hosts[0].name != HostService &&
				len(a.hosts) < maxEntries &&
				a.PassThrough == r.PassThrough && slices.Equal(a.ports, r.ports) && slices.Equal(a.methods, r.methods) &&
				slices.EqualFunc(a.paths, r.paths, sameGlob)
		})
		if i < 0 {
			all = append(all, r)
		} else {
			all[i].hosts = append(all[i].hosts, r.hosts...)
		}
	}
	return all
}

// reserved returns the rules for private addresses that names led to.
func (o *observations) reserved() []Rule {
	var all []Rule
	for _, r := range o.dials {
		rule := Rule{Action: Allow, cidrs: []netip.Prefix{single(r.Address)}, ports: []portRange{{r.Port, r.Port}},
			Note: r.Host.String() + " is there"}
		if !slices.ContainsFunc(all, func(have Rule) bool { return have.covers(&rule) }) {
			all = append(all, rule)
		}
	}
	return all
}

// patterns returns the patterns of a list of canonical paths; nil for any path.
func patterns(paths []string) []glob {
	var texts []string
	for _, path := range paths {
		texts = append(texts, patternOf(path))
		if strings.Contains(path, "%2F") { // judged in both readings
			texts = append(texts, patternOf(strings.ReplaceAll(path, "%2F", "/")))
		}
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if len(texts) > learnedPaths {
		texts = []string{inCommon(texts)}
	}
	var all []glob
	for _, text := range texts {
		g, err := parseGlob(text)
		if err != nil || text == "/**" {
			return nil
		}
		all = append(all, g)
	}
	return all
}

// patternOf returns a path with "*" in place of parts that look like ids.
func patternOf(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if looksLikeID(s) {
			segments[i] = "*"
		} else {
			segments[i] = strings.ReplaceAll(s, "*", "%2A")
		}
	}
	return strings.Join(segments, "/")
}

// looksLikeID reports numbers, and long runs of hexadecimal digits and hyphens.
func looksLikeID(s string) bool {
	if s == "" {
		return false
	}
	digits := strings.Trim(s, "0123456789") == ""
	hexadecimal := strings.Trim(strings.ToLower(s), "0123456789abcdef-") == "" && strings.ContainsAny(s, "0123456789")
	return digits || hexadecimal && len(s) >= 16
}

func inCommon(texts []string) string {
	common := strings.Split(texts[0], "/")
	for _, text := range texts[1:] {
		segments := strings.Split(text, "/")
		n := 0
		for n < len(common) && n < len(segments) && common[n] == segments[n] {
			n++
		}
		common = common[:n]
	}
	return strings.Join(append(slices.Clone(common), "**"), "/")
}

const tallied = 4 // bounds the attempts that a comment lists

func (r *Rule) tally(tried []Attempt) string {
	only := &Policy{mode: cove.NetworkLimited, allow: []*Rule{r}}
	var requests, lookups, denied int64
	var what []string
	for _, t := range tried {
		if t.Layer == LayerDial || t.Layer == LayerConnect && r.inner() || only.Decide(t.Request).Action != Allow {
			continue
		}
		if t.Layer == LayerDNS {
			lookups += t.Times
			continue
		}
		requests += t.Times
		if t.Denied {
			denied += t.Times
		}
		text := t.Host.Authority(t.Port)
		if t.Layer == LayerHTTP {
			text = t.Method + " " + t.Path
			if len(r.hosts) > 1 {
				text = t.Method + " " + t.Host.String() + t.Path
			}
		}
		if !slices.Contains(what, text) {
			what = append(what, text)
		}
	}
	switch {
	case requests == 0 && lookups > 0:
		return fmt.Sprintf("looked up %s and denied; what for was not seen", times(lookups))
	case requests == 0:
		return ""
	}
	text := "tried " + times(requests)
	if denied > 0 {
		text += fmt.Sprintf(", denied %s", times(denied))
	}
	listed := what[:min(len(what), tallied)]
	text += ": " + strings.Join(listed, ", ")
	if more := len(what) - len(listed); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
