package seccomp

import (
	"slices"
	"syscall"

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
	p := Agent()
	p.Name = "snippet"
	p.Allowed = without(p.Allowed, append(inotify(), "memfd_create")...)
	p.Refused = append(p.Refused,
		Group{Why: "runs a program that was never a file, so that no file system rule has seen it",
			Calls: []string{"memfd_create"}},
		Group{Why: "watches files of a root file system that all sandboxes share, and so sees what neighbours and the host " +
			"run; programs fall back to looking again",
			Errno: syscall.ENOSYS, Calls: inotify()})
	return p
}

// Agent returns the policy for coding agents: their browsers share memory by memfd_create, and their tools watch files.
func Agent() Policy {
	return Policy{Name: "agent", Allowed: allowed(), Conditional: conditional(), Refused: refused()}
}

func without(groups []Group, names ...string) []Group {
	var kept []Group
	for _, g := range groups {
		g.Calls = slices.DeleteFunc(g.Calls, func(c string) bool { return slices.Contains(names, c) })
		if len(g.Calls) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}
