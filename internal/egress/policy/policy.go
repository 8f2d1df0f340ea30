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
//   - open: every name and every public address; rules may deny, and may allow more.
//
// So nil, empty and absent mean deny. Neither fewer rules that allow or ask nor more that deny ever add reach.
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
	"strings"

	"github.com/cove-sandbox/cove"
	git "github.com/cove-sandbox/cove/internal/git/policy"
)

// Machine describes the machine and its gateway for a policy.
type Machine struct {
	// Registry returns where a tool (npm, pip, go, apt, cargo, gem) gets packages. Nil refuses their presets.
	Registry func(tool string) ([]Endpoint, error)
	// Private are reserved addresses that the gateway's configuration opens to every name that a rule allows.
	Private []netip.Prefix
	// Own are the machine's own addresses, except loopback. Each is refused unless a rule, or Private, names it.
	Own []netip.Addr
}

// Policy is the compiled policy of one sandbox. It never changes. The nil Policy and the zero Policy deny everything.
type Policy struct {
	sandbox string // for remedies
	mode    cove.NetworkMode
	deny    []*Rule
	allow   []*Rule
	ask     []*Rule
	private []netip.Prefix
	own     []netip.Addr

	pullRequests Grant
	repositories Repositories
	git          []GitRule // one for each remote
	unshared     bool
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

// GitHub holds the grants of a policy at GitHub's API.
type GitHub struct {
	PullRequests bool         // opening them, and commenting
	Repositories Repositories // the only ones; none is no limit
}

// GitHub returns what is granted at GitHub's API.
func (p *Policy) GitHub() GitHub {
	if p == nil {
		return GitHub{}
	}
	return GitHub{PullRequests: p.pullRequests == Granted, Repositories: p.repositories}
}

// Unshared reports whether a sandbox keeps away from the cache of packages that sandboxes share.
func Unshared(p *Policy) bool { return p != nil && p.unshared }

// Mode returns the mode after all documents.
func (p *Policy) Mode() cove.NetworkMode {
	if p == nil || p.mode == "" {
		return cove.NetworkNone
	}
	return p.mode
}

// Through returns the command that would pass a connection to a host and port through, whatever its protocol.
func (p *Policy) Through(h Host, port uint16) string {
	return allowCommand(p.sandbox, "tcp://"+h.Authority(port))
}

// WithPreset returns the command that would add a preset to a policy.
func WithPreset(p *Policy, name string) string { return allowCommand(p.sandbox, "--preset "+name) }

// Unjudged returns the command that would pass connections to a host through without a look into them.
func Unjudged(p *Policy, target string) string {
	return allowCommand(p.sandbox, "--pass-through "+target)
}

// GitHost reports whether git at a host needs a grant, whatever the port: each may lead to the same server.
func (p *Policy) GitHost(h Host) bool {
	return p != nil && slices.ContainsFunc(p.git, func(g GitRule) bool { return g.Remote.Host == h })
}

// Git returns the git policy of a repository, by its path with ".git" or without; nil if it has none.
func (p *Policy) Git(h Host, port uint16, path string) *git.Policy {
	if p == nil {
		return nil
	}
	path = strings.TrimSuffix(path, ".git")
	var best *GitRule
	for i := range p.git {
		g := &p.git[i]
		if g.Remote.Host != h || g.Remote.Port != port || !g.Remote.has(path) {
			continue
		}
		if best == nil || best.Remote.Below && (!g.Remote.Below || len(g.Remote.Path) > len(best.Remote.Path)) {
			best = g
		}
	}
	if best == nil {
		return nil
	}
	return best.policy()
}
