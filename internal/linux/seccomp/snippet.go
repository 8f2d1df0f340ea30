package seccomp

import (
	"maps"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Processes are all processes of a sandbox.
type Processes struct {
	User      cove.User
	Shared    bool // they write into directories of the host
	Debuggers bool // they may trace one another
}

// For returns the policy for processes: that of root inside, Agent for an agent, else Snippet, the stricter one; of
// each that with debuggers.
func For(p Processes) Policy { return policies()[p.name()]() }

const debuggers = "-debuggers" // ends the name of a policy that allows them

func policies() map[string]func() Policy {
	all := map[string]func() Policy{"snippet": Snippet, "agent": Agent, "root": Root, "root-shared": RootShared}
	for name, policy := range maps.Clone(all) {
		all[name+debuggers] = func() Policy { return withDebuggers(policy()) }
	}
	return all
}

// name is the name of the policy for p.
func (p Processes) name() string {
	name := "snippet"
	switch {
	case p.User.MayBeRoot() && p.Shared:
		name = "root-shared"
	case p.User.MayBeRoot():
		name = "root"
	case p.User.Agent:
		name = "agent"
	}
	if p.Debuggers {
		name += debuggers
	}
	return name
}

// withDebuggers returns a policy whose processes trace others: of their own user and namespace, and with no more
// capabilities than they have. PID 1 has another user and is not dumpable, and a traced process has its filter. A
// debugger also switches address randomisation off in the program that it starts.
func withDebuggers(p Policy) Policy {
	p.Name += debuggers
	calls := list("ptrace process_vm_readv process_vm_writev")
	p.Refused = without(p.Refused, calls...)
	p.Allowed = append(p.Allowed, Group{Why: "reads and changes other processes of the sandbox's user, as debuggers do",
		Calls: calls})
	for i := range p.Conditional {
		switch r := &p.Conditional[i]; r.Call {
		case "prctl":
			r.AnyOf = append(r.AnyOf, Match{is(0, unix.PR_SET_PTRACER)})
		case "personality":
			r.AnyOf = append(r.AnyOf, Match{is(0, addrNoRandomize)})
		}
	}
	return p
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

// Root returns the policy for root inside: it unpacks packages, whose programs may be setuid, and changes its root
// directory, as daemons do.
func Root() Policy {
	p := RootShared()
	p.Name = "root"
	var calls []string
	for _, r := range modes() {
		calls = append(calls, r.Call)
	}
	p.Conditional = slices.DeleteFunc(p.Conditional, func(r Rule) bool { return slices.Contains(calls, r.Call) })
	for i := range p.Conditional {
		if r := &p.Conditional[i]; r.Call == "mknod" || r.Call == "mknodat" {
			r.AnyOf = []Match{nodes(r.AnyOf[0][0].Arg, unix.S_IFMT)}
		}
	}
	p.Allowed = append(p.Allowed, Group{Why: "modes with setuid and setgid, by which a program becomes root inside, or " +
		"another user there: no directory of the host is written", Calls: calls})
	return p
}

// RootShared returns the policy for root inside that writes into directories of the host, where no file may be setuid.
func RootShared() Policy {
	p := Agent()
	p.Name = "root-shared"
	for i := range p.Conditional {
		if r := &p.Conditional[i]; r.Call == "socket" { // of the log of audits, which useradd and su write, if there is one
			r.Unknown = []Match{{is(0, unix.AF_NETLINK), is(2, unix.NETLINK_AUDIT)}}
		}
	}
	p.Refused = without(p.Refused, "chroot")
	p.Allowed = append(p.Allowed, Group{Why: "a root directory below the sandbox's own", Calls: []string{"chroot"}})
	return p
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
