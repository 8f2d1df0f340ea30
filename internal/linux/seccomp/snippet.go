package seccomp

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// For returns the policy for a user's processes: Agent for the id of cove.AgentUser, else Snippet, the stricter one.
func For(u cove.User) Policy {
	if u.UID == cove.AgentUser.UID {
		return Agent()
	}
	return Snippet()
}

// Snippet returns the policy for code snippets.
func Snippet() Policy {
	p := Policy{Name: "snippet", Allowed: allowed(), Conditional: conditional(), Refused: refused()}
	p.Allowed = without(p.Allowed, append(inotify(), "memfd_create")...)
	for i := range p.Conditional {
		if r := &p.Conditional[i]; r.Call == "prctl" {
			others := slices.DeleteFunc(prctlOptions(), func(o uint32) bool { return o == unix.PR_SET_SECCOMP })
			r.AnyOf = []Match{{is(0, others...)}}
		}
	}
	p.Refused = append(p.Refused,
		Group{Why: "the kernel keeps compiled filters in memory that it counts for no group, up to one limit for the whole " +
			"host (net.core.bpf_jit_limit); programs go on without a filter of their own, as on a kernel that has none",
			Errno: syscall.EINVAL, Calls: []string{"seccomp"}},
		Group{Why: "runs a program that was never a file, so that no file system rule has seen it",
			Calls: []string{"memfd_create"}},
		Group{Why: "watches files of a root file system that all sandboxes share, and so sees what neighbours and the host " +
			"run; programs fall back to looking again",
			Errno: syscall.ENOSYS, Calls: inotify()})
	return p
}

// Agent returns the policy for coding agents: their browsers share memory by memfd_create, their tools watch files, and
// some of their programs put a filter on themselves.
func Agent() Policy {
	return Policy{Name: "agent", Allowed: allowed(), Conditional: append(conditional(), ownFilter()), Refused: refused()}
}

// loadable returns the policy with the call by which a guest loads its own program.
func (p Policy) loadable() Policy {
	if slices.ContainsFunc(p.Conditional, func(r Rule) bool { return r.Call == ownFilter().Call }) {
		return p
	}
	p.Conditional, p.Refused = append(p.Conditional, ownFilter()), without(p.Refused, ownFilter().Call)
	return p
}

func without(groups []Group, names ...string) []Group {
	var kept []Group
	for _, g := range groups {
		g.Calls = slices.DeleteFunc(slices.Clone(g.Calls), func(c string) bool { return slices.Contains(names, c) })
		if len(g.Calls) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}
