// Package policy owns the decision on what may leave a sandbox: hosts, addresses, rules and verdicts, all of it pure.
//
// # A decision
//
// The gateway calls Decide at each layer: for a name that is looked up, for a connection, for each request in it, and
// for the address about to be dialled. All layers must allow. The first two see fewer fields than a rule may name, so
// they allow what some rule could allow.
//
// The order of rules never matters. A rule that denies wins over one that allows, and that over one that asks. The mode
// decides on everything that no rule covers:
//
//   - none: nothing leaves, whatever the rules say.
//   - limited: only what rules allow. This is the default mode.
//   - host-only: only services of the machine itself (HostService), by port.
//   - open: every name and every public address; rules may deny, and may allow
//     more.
//
// So nil, empty and absent mean deny. Removing a rule that allows or asks never adds reach, nor does adding one that
// denies.
//
// Names never lead to reserved addresses (Reserved): the gateway dials one only if a rule by cidrs names it, or its own
// configuration (Machine.Private). No rule opens loopback and cloud metadata.
//
// # Layers of documents
//
// Compile merges documents in the order template, profile, tenant, sandbox. Each extends the ones before it, or with
// "merge: replace" drops what they allow and ask, but never what they deny. The last stated mode counts.
package policy

import (
	"net/netip"
	"slices"

	"github.com/cove-sandbox/cove"
)

// Machine describes the machine and its gateway for a policy.
type Machine struct {
	// Registry returns the hosts from which an installed tool (npm, pip, go, apt, cargo) gets packages. If it is nil,
	// presets of registries are refused.
	Registry func(tool string) ([]Endpoint, error)
	// Private are reserved addresses that the gateway's configuration opens to every name that a rule allows.
	Private []netip.Prefix
	// Own are the machine's own addresses, except loopback. They are refused unless a rule, or Private, names one
	// individually.
	Own []netip.Addr
}

// Policy is the compiled policy of one sandbox. It never changes; a live change swaps the pointer. The nil Policy and
// the zero Policy deny everything.
type Policy struct {
	sandbox string // for remedies
	mode    cove.NetworkMode
	deny    []Rule
	allow   []Rule
	ask     []Rule
	private []netip.Prefix
	own     []netip.Addr

	pullRequests Grant
	git          []GitRule // one for each remote
}

// Compile merges documents, first to last, into one policy. Errors: InvalidArgument with the rule's place, or the error
// of Registry.
func Compile(m Machine, layers ...*Document) (*Policy, error) {
	p := &Policy{private: slices.Clone(m.Private), own: slices.Clone(m.Own)}
	for _, d := range layers {
		if d == nil {
			continue
		}
		if d.Replace {
			p.allow, p.ask = nil, nil
			p.dropGit()
			if p.pullRequests == Granted {
				p.pullRequests = Unsaid
			}
		}
		if p.pullRequests != Refused && d.PullRequests != Unsaid {
			p.pullRequests = d.PullRequests
		}
		p.mergeGit(d.Git)
		if d.Mode != "" {
			p.mode = d.Mode
		} else if p.mode == "" {
			p.mode = cove.NetworkLimited
		}
		for _, use := range d.Presets {
			rules, err := use.expand(m.Registry)
			if err != nil {
				return nil, err
			}
			if err := p.add(rules); err != nil {
				return nil, err
			}
		}
		if err := p.add(d.Rules); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Policy) add(rules []Rule) error {
	for _, r := range rules {
		switch r.Action {
		case Deny:
			p.deny = append(p.deny, r)
			continue
		case Allow:
			p.allow = append(p.allow, r)
		case Ask:
			p.ask = append(p.ask, r)
		}
		for _, c := range r.cidrs {
			if err := p.opens(c); err != nil {
				return cove.Errorf(cove.InvalidArgument, "%s: %s", r.ID, bare(err)).WithHint("%s", cove.ErrorHint(err))
			}
		}
	}
	return nil
}

// never are the ranges that no rule opens, neither entirely nor in part.
var never = []special{
	{"this machine", netip.MustParsePrefix("127.0.0.0/8")},
	{"this machine", netip.MustParsePrefix("0.0.0.0/8")},
	{"this machine", netip.MustParsePrefix("::1/128")},
	{"this machine", netip.MustParsePrefix("::/128")},
}

// opens refuses a range inside one that no rule opens. A wider range is accepted and does not open it.
func (p *Policy) opens(c netip.Prefix) error {
	for _, s := range append(slices.Clone(never), specials...) {
		if s.class != "this machine" && s.class != classMetadata || !within(s.net, c) {
			continue
		}
		if p.configured(c.Addr()) {
			return nil
		}
		hint := "only the gateway's own configuration can"
		if s.class == "this machine" {
			hint = "a service of this machine is " + HostService + " with its port"
		}
		return cove.Errorf(cove.InvalidArgument, "%s is %s, which no rule opens", c, s.class).WithHint("%s", hint)
	}
	return nil
}

// For returns p with the sandbox's name, which remedies contain.
func (p *Policy) For(sandbox string) *Policy {
	if p == nil {
		return nil
	}
	named := *p
	named.sandbox = sandbox
	return &named
}

// PullRequests reports whether opening pull requests and commenting by GitHub's API is granted.
func (p *Policy) PullRequests() bool { return p != nil && p.pullRequests == Granted }

// Mode returns the mode after all documents.
func (p *Policy) Mode() cove.NetworkMode {
	if p == nil || p.mode == "" {
		return cove.NetworkNone
	}
	return p.mode
}
