package policy

import (
	"net/netip"
	"slices"

	"github.com/cove-sandbox/cove"
)

// Decide judges a request. It is pure and does not allocate for an allowed request. It denies a request without the
// fields that its layer needs, and a request with parts that are not canonical.
func (p *Policy) Decide(r Request) Verdict {
	mode := p.Mode()
	if mode == cove.NetworkNone {
		return Verdict{Rule: "default", Reason: "this sandbox has no network"}
	}
	if why := malformed(r); why != "" {
		return Verdict{Rule: "malformed", Reason: why}
	}
	if why := closedName(r.Host.name); why != "" {
		return Verdict{Rule: "default", Reason: r.Host.name + " leads to " + why + ", which no rule opens"}
	}
	q := query{Request: r}
	q.path, q.slashes = appendDecoded(q.buf[:0], r.Path, encodedSlash)
	v := p.byRules(mode, &q)
	switch {
	case v.Action == Deny:
		return v
	case r.Layer == LayerDial:
		return p.byAddress(&q, r.Address.Unmap(), v)
	case r.Host.addr.IsValid():
		return p.byAddress(&q, r.Host.addr, v)
	}
	return v
}

type query struct {
	Request
	buf     [512]byte // room for the decoded path
	path    []byte
	slashes bool // path has encoded slashes, and is judged in both readings
}

// malformed returns the fields that a request lacks for its layer, or "".
func malformed(r Request) string {
	if r.Host.IsZero() {
		return "it names no host"
	}
	if r.Layer != LayerDNS && r.Port == 0 {
		return "it names no port"
	}
	switch r.Layer {
	case LayerDNS:
		if r.Host.name == "" {
			return "an address is not a name to look up"
		}
	case LayerConnect:
	case LayerHTTP:
		if why := objectionToMethod(r.Method); why != "" {
			return "the method " + quote(r.Method) + " is refused: " + why
		}
		if r.Path == "" {
			return "it has no path"
		}
		if why := objectionToPath(r.Path); why != "" {
			return "the path is refused: " + why
		}
	case LayerDial:
		if !r.Address.IsValid() || r.Address.Zone() != "" {
			return "it has no address to dial"
		}
		if r.Host.addr.IsValid() && r.Host.addr != r.Address.Unmap() {
			return "the address to dial is not the one that was judged"
		}
	default:
		return "it is of no layer"
	}
	return ""
}

// byRules applies the rules to host, port, method and path.
func (p *Policy) byRules(mode cove.NetworkMode, q *query) Verdict {
	rule, inside := p.denying(q)
	if rule != nil {
		return denied(rule, q)
	}
	if mode == cove.NetworkHostOnly && q.Host.name != HostService {
		return Verdict{Rule: "default", Reason: "this sandbox reaches services of its machine only (mode host-only)"}
	}
	passable := q.Layer == LayerConnect && !inside
	if r, passThrough := p.permitting(p.allow, q, false); r != nil {
		return Verdict{Action: Allow, Rule: r.ID, Reason: r.reason(), PassThrough: passThrough && !inside,
			Whole: passable && cover(p.allow, q, true), Passable: passable}
	}
	open := mode == cove.NetworkOpen && p.isOpen(q)
	if r, passThrough := p.permitting(p.ask, q, open); r != nil {
		return Verdict{Action: Ask, Rule: r.ID, Reason: r.reason(), Remedy: remedy(p.sandbox, q.Host, q.Port),
			PassThrough: passThrough && !inside, Asks: p.asks(q)}
	}
	if open {
		return Verdict{Action: Allow, Rule: "default", Reason: "the network is open",
			Whole: passable && !cover(p.ask, q, false), Passable: passable}
	}
	return p.unmatched(q)
}

// denying returns the rule that denies q. inside reports that the rule denies only some requests in the connection.
func (p *Policy) denying(q *query) (rule *Rule, inside bool) {
	for _, d := range p.deny {
		if !d.about(q.Host) {
			continue
		}
		switch q.Layer {
		case LayerDNS:
			if !d.inPart(LayerDNS) {
				return d, false
			}
		case LayerHTTP:
			if d.hasRequest(q) {
				return d, false
			}
		default:
			if hasPort(d.reach(), q.Port) {
				if !d.inner() {
					return d, false
				}
				inside = true
			}
		}
	}
	return nil, inside
}

// Denied reports whether a rule denies a request. It ignores the rules that allow: the gateway asks it about its own
// endpoints, which a policy may deny but not allow.
func (p *Policy) Denied(r Request) (Verdict, bool) {
	if why := malformed(r); why != "" || p == nil {
		return Verdict{Rule: "malformed", Reason: why}, true
	}
	q := query{Request: r}
	q.path, q.slashes = appendDecoded(q.buf[:0], r.Path, encodedSlash)
	if rule, _ := p.denying(&q); rule != nil {
		return denied(rule, &q), true
	}
	for _, d := range p.deny {
		if r.Layer == LayerDial && d.dials(&q, r.Address.Unmap()) {
			return denied(d, &q), true
		}
	}
	return Verdict{}, false
}

// dials reports whether r covers an address that is dialled.
func (r *Rule) dials(q *query, a netip.Addr) bool {
	return r.hasAddress(a) && hasPort(r.reach(), q.Port)
}

// permitting returns the rule that allows q, preferably one that passes through, since that allows everything another
// could. With whole it ignores rules about only some later requests.
func (p *Policy) permitting(rules []*Rule, q *query, whole bool) (found *Rule, passThrough bool) {
	var apart, together *Rule // by reading of encoded slashes
	for _, r := range rules {
		if !r.about(q.Host) || whole && r.inPart(q.Layer) {
			continue
		}
		switch q.Layer {
		case LayerDNS:
			if p.leaves(r, q.Host) {
				return r, false
			}
		case LayerHTTP:
			if !hasPort(r.reach(), q.Port) || !r.hasMethod(q.Method) {
				continue
			}
			if together == nil && r.hasPath(q.path, false) {
				together = r
			}
			if apart == nil && q.slashes && r.hasPath(q.path, true) {
				apart = r
			}
			if together != nil && (apart != nil || !q.slashes) {
				return together, false
			}
		default:
			if !hasPort(r.reach(), q.Port) {
				continue
			}
			if r.PassThrough {
				return r, true
			}
			if found == nil {
				found = r
			}
		}
	}
	return found, false
}

// cover reports whether one of some rules covers a connection: every request in it if whole, or some.
func cover(rules []*Rule, q *query, whole bool) bool {
	return slices.ContainsFunc(rules, func(r *Rule) bool {
		return !(whole && r.inner()) && r.about(q.Host) && hasPort(r.reach(), q.Port)
	})
}

// asks returns the parts of a request that the asking rules look at, over all rules, since their order does not matter.
func (p *Policy) asks(q *query) (all Asks) {
	if q.Layer != LayerHTTP {
		return Asks{}
	}
	for _, r := range p.ask {
		if r.about(q.Host) && r.hasRequest(q) {
			all.Method = all.Method || r.methods != nil
			all.Path = all.Path || r.paths != nil
		}
	}
	return all
}

// leaves reports whether r permits some port of a name that no rule denies.
func (p *Policy) leaves(r *Rule, h Host) bool {
	for _, ports := range r.reach() {
		for port := uint32(ports.low); port <= uint32(ports.high); {
			end := p.deniedUntil(h, port)
			if end == port {
				return true
			}
			port = end
		}
	}
	return false
}

// deniedUntil returns port, or a port after it if rules deny all ports in between.
func (p *Policy) deniedUntil(h Host, port uint32) uint32 {
	for _, d := range p.deny {
		if d.inner() || !d.about(h) {
			continue
		}
		for _, s := range d.reach() {
			if uint32(s.low) <= port && port <= uint32(s.high) {
				port = uint32(s.high) + 1
			}
		}
	}
	return port
}

// isOpen reports whether the open mode covers q: names and public addresses.
func (p *Policy) isOpen(q *query) bool {
	if q.Host.name != "" {
		return q.Host.name != HostService
	}
	_, reserved := Reserved(q.Host.addr)
	return !reserved && !p.isOwn(q.Host.addr)
}

// inPart reports whether r covers only some of the requests that may follow a layer.
func (r *Rule) inPart(l Layer) bool {
	return l != LayerHTTP && r.inner() || l == LayerDNS && !coversPorts(r.reach(), allPorts)
}

// about reports whether r covers any port of a host.
func (r *Rule) about(h Host) bool {
	if h.name == "" {
		return r.hasAddress(h.addr)
	}
	return slices.ContainsFunc(r.hosts, func(p pattern) bool { return p.match(h.name) })
}

// Names reports whether a rule of a policy that allows or asks is about a host.
func Names(p *Policy, h Host) bool {
	about := func(r *Rule) bool { return r.about(h) }
	return p != nil && (slices.ContainsFunc(p.allow, about) || slices.ContainsFunc(p.ask, about))
}

// Reads reports whether a policy lets everything be read at a host and port, without asking for any of it.
func Reads(p *Policy, h Host, port uint16) bool {
	if p == nil || p.Mode() == cove.NetworkNone {
		return false
	}
	at := func(r *Rule) bool { return r.about(h) && hasPort(r.reach(), port) }
	all := func(r *Rule) bool { return at(r) && r.hasMethod("GET") && r.paths == nil }
	if slices.ContainsFunc(p.deny, func(r *Rule) bool { return at(r) && r.hasMethod("GET") }) {
		return false
	}
	open := p.Mode() == cove.NetworkOpen && p.isOpen(&query{Request: Request{Host: h}})
	return slices.ContainsFunc(p.allow, all) ||
		open && !slices.ContainsFunc(p.ask, func(r *Rule) bool { return at(r) && r.hasMethod("GET") })
}

// hasAddress reports whether a is in one of r's ranges. For a rule that denies, the embedded IPv4 address counts too.
func (r *Rule) hasAddress(a netip.Addr) bool {
	if len(r.cidrs) == 0 {
		return false
	}
	if slices.ContainsFunc(r.cidrs, func(c netip.Prefix) bool { return c.Contains(a) }) {
		return true
	}
	v4, ok := embedded(a)
	return ok && r.Action == Deny && r.hasAddress(v4)
}

func (r *Rule) hasMethod(method string) bool {
	return r.methods == nil || slices.Contains(r.methods, method)
}

func (r *Rule) hasPath(path []byte, split bool) bool {
	return r.paths == nil || slices.ContainsFunc(r.paths, func(g glob) bool { return g.match(path, split) })
}

// hasRequest reports whether r covers a request of LayerHTTP to a host that r is about, in either reading of its path.
func (r *Rule) hasRequest(q *query) bool {
	return hasPort(r.reach(), q.Port) && r.hasMethod(q.Method) &&
		(r.hasPath(q.path, false) || q.slashes && r.hasPath(q.path, true))
}

// byAddress judges the address that is or would be dialled; v is the verdict of the rules.
func (p *Policy) byAddress(q *query, a netip.Addr, v Verdict) Verdict {
	if q.Host.name == HostService {
		if a.IsLoopback() {
			return v
		}
		return Verdict{Rule: "address", Reason: HostService + " is this machine's loopback, and not " + a.String()}
	}
	for _, d := range p.deny {
		if d.dials(q, a) {
			return denied(d, q)
		}
	}
	class, reserved := Reserved(a)
	if !reserved && p.isOwn(a) {
		class, reserved = "an address of this machine", true
	}
	if !reserved {
		return v
	}
	action, id := p.named(q, a)
	if v4, ok := embedded(a); ok { // both the address and the embedded one must be open
		if _, inner := Reserved(v4); inner || p.isOwn(v4) {
			if by, _ := p.named(q, v4); by < action {
				action = by
			}
		}
	}
	switch {
	case action == Allow, action == Ask && v.Action == Ask && q.Host.addr == a:
		return v
	case action == Ask: // also where the name has been asked about: the address is a separate question
		return Verdict{Action: Ask, Rule: id, Reason: "a rule asks before " + a.String() + " is dialled",
			Remedy: remedy(p.sandbox, HostOf(a), q.Port), PassThrough: v.PassThrough, Asks: Asks{Address: true}}
	}
	refused := Verdict{Rule: "address", Reason: q.Host.String() + " is at " + a.String() + " (" + class +
		"), which no rule by cidrs names"}
	if q.Host.addr.IsValid() {
		refused.Reason = a.String() + " (" + class + ") cannot be opened by a rule by cidrs"
		if by := p.wider(q, a); by != "" && p.openable(a) {
			refused.Reason = a.String() + " (" + class + ") is opened only by a cidr that lies within its reserved range; " + by
		}
	} else if by := p.wider(q, a); by != "" && p.openable(a) {
		refused.Reason = q.Host.String() + " is at " + a.String() + " (" + class +
			"), which is opened only by a cidr that lies within its reserved range; " + by
	}
	if p.openable(a) {
		refused.Remedy = remedy(p.sandbox, HostOf(a), q.Port)
	}
	return refused
}

// named applies rules by cidrs and the gateway's configuration to a reserved address. Methods and paths of a rule
// concern requests to the address itself, so a rule with them opens the address to no name.
func (p *Policy) named(q *query, a netip.Addr) (Action, string) {
	if p.configured(a) {
		return Allow, "gateway"
	}
	if closedAddress(a) {
		return Deny, ""
	}
	for _, rules := range [2][]*Rule{p.allow, p.ask} {
		for _, r := range rules {
			if !hasPort(r.reach(), q.Port) || r.inner() && q.Host.name != "" {
				continue
			}
			for _, c := range r.cidrs {
				if c.Contains(a) && (c.IsSingleIP() || !p.isOwn(a) && names(c, a)) {
					return r.Action, r.ID
				}
			}
		}
	}
	return Deny, ""
}

// names reports whether a range that contains a is within a reserved range with it. A wider one opens the public
// addresses in it only.
func names(c netip.Prefix, a netip.Addr) bool {
	inSpecial := false
	for _, s := range specials {
		if s.net.Contains(a) {
			if within(s.net, c) {
				return true
			}
			inSpecial = true
		}
	}
	if inSpecial {
		return false
	}
	return a.Is4() || globalV6.Contains(a) || !c.Overlaps(globalV6) // the last: not assigned
}

// wide reports whether a range has reserved addresses that it does not open, since it lies within none of their ranges.
func wide(c netip.Prefix) bool {
	if !slices.ContainsFunc(specials, func(s special) bool { return s.net.Overlaps(c) }) {
		return c.Addr().Is6() && c.Overlaps(globalV6) && !within(globalV6, c)
	}
	return !slices.ContainsFunc(specials, func(s special) bool { return within(s.net, c) })
}

// wider says which rule has a cidr that contains a and opens public addresses only, or returns "".
func (p *Policy) wider(q *query, a netip.Addr) string {
	for _, rules := range [2][]*Rule{p.allow, p.ask} {
		for _, r := range rules {
			for _, c := range r.cidrs {
				if c.Contains(a) && !names(c, a) && hasPort(r.reach(), q.Port) {
					return r.ID + " has the wider " + c.String()
				}
			}
		}
	}
	return ""
}

// openable reports whether a rule could open a.
func (p *Policy) openable(a netip.Addr) bool {
	if v4, ok := embedded(a); ok {
		if _, reserved := Reserved(v4); reserved || p.isOwn(v4) {
			return false
		}
	}
	return p.configured(a) || !closedAddress(a)
}

// Closed reports whether no rule of a sandbox can open h. The gateway's own configuration can open addresses.
func (h Host) Closed() bool {
	a, ok := h.Addr()
	return ok && closedAddress(a) || closedName(h.name) != ""
}

// closedAddress reports whether a can never be opened by a rule.
func closedAddress(a netip.Addr) bool {
	return slices.ContainsFunc(never, func(s special) bool { return s.net.Contains(a) }) || metadata(a)
}

// configured reports whether the gateway's configuration opens a.
func (p *Policy) configured(a netip.Addr) bool {
	return slices.ContainsFunc(p.private, func(c netip.Prefix) bool {
		return c.Contains(a) && (c.IsSingleIP() || !p.isOwn(a) && !metadata(a))
	})
}

func (p *Policy) isOwn(a netip.Addr) bool {
	return slices.ContainsFunc(p.own, func(own netip.Addr) bool { return own.Unmap() == a })
}

func denied(d *Rule, q *query) Verdict {
	reason := d.ID + " denies " + q.Host.String()
	if d.inner() {
		reason += " " + q.Method + " " + q.Path
	}
	if d.Note != "" {
		reason += ": " + d.Note
	}
	return Verdict{Rule: d.ID, Reason: reason}
}

func (r *Rule) reason() string {
	if r.Note != "" {
		return r.Note
	}
	if r.Action == Ask {
		return "a rule asks first"
	}
	return "a rule allows it"
}

// unmatched denies a request that no rule covers, and says which rule came close.
func (p *Policy) unmatched(q *query) Verdict {
	v := Verdict{Rule: "default", Remedy: remedy(p.sandbox, q.Host, q.Port)}
	if q.Host.name == HostService && q.Layer == LayerDNS {
		v.Remedy = "" // it is about a port
	}
	what := q.Host.String()
	if q.Layer != LayerDNS {
		what = q.Host.Authority(q.Port)
	}
	v.Reason = "no rule allows " + what
	if a, ok := q.Host.Addr(); ok {
		if !p.openable(a) {
			v.Remedy = ""
		}
		if class, reserved := Reserved(a); reserved {
			v.Reason += " (" + class + ")"
		}
		return v
	}
	for _, r := range p.allow {
		if r.about(q.Host) {
			if q.Layer == LayerHTTP && hasPort(r.reach(), q.Port) {
				v.Reason = r.ID + " allows " + q.Host.name + ", but not " + q.Method + " " + q.Path
			} else if !hasPort(r.reach(), q.Port) && q.Port != 0 {
				v.Reason = r.ID + " allows " + q.Host.name + ", but not port " + portRange{q.Port, q.Port}.String()
			}
			return v
		}
		for _, h := range r.hosts {
			if h.depth > 0 && h.tooDeep(q.Host.name) {
				v.Reason = r.ID + " allows " + h.String() + ", but " + q.Host.name + " has more labels than its depth"
			}
		}
	}
	return v
}

// Step is the verdict of one layer.
type Step struct {
	Layer   Layer
	Verdict Verdict
}

// Explain judges a request at each layer that its fields suffice for: the name, the connection, the request in it if
// there is a method and the connection is intercepted, and the address if there is one. The verdict is the strictest.
func (p *Policy) Explain(r Request) (Verdict, []Step) {
	var steps []Step
	judge := func(l Layer) Verdict {
		r.Layer = l
		v := p.Decide(r)
		steps = append(steps, Step{l, v})
		return v
	}
	if r.Host.Name() != "" {
		judge(LayerDNS)
	}
	if v := judge(LayerConnect); r.Method != "" && !v.PassThrough {
		judge(LayerHTTP)
	}
	if r.Address.IsValid() {
		judge(LayerDial)
	}
	least := steps[len(steps)-1].Verdict // of equally strict ones, the layer that saw most
	for _, s := range steps {
		if s.Verdict.Action < least.Action {
			least = s.Verdict
		}
	}
	return least, steps
}
