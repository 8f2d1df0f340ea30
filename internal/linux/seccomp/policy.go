// Package seccomp owns the policy of system calls: one deny-by-default list, as data, and the filters made from it. It
// compiles the filter itself, without libseccomp, which needs cgo.
//
// A [Policy] lists every call of the kernel, in groups with a reason: allowed, allowed under a condition on its
// arguments, or refused. [Policy.Compile] makes the kernel's filter program for either architecture, on any machine;
// [Policy.OCI] renders the same policy for container engines.
//
// # Verdicts
//
// A refused call fails and the program goes on; the filter kills no process:
//
//   - a call through another ABI (32-bit "int 0x80", x32) fails with EPERM;
//   - a call that the policy refuses fails with EPERM, or with ENOSYS where
//     programs then fall back to an older call (clone3 to clone);
//   - a number outside the table fails with ENOSYS, as on a kernel without
//     the call;
//   - a few calls are ignored: they do nothing and report success, because
//     programs that make them cannot go on otherwise.
//
// Conditions test numbers and flags that the kernel itself truncates to 32 bits. So they see only the low 32 bits:
// garbage above them neither breaks a program nor bypasses a rule. A pointer is tested whole.
//
// # The program
//
// The program is a balanced binary search over ranges of call numbers: 252 instructions on amd64 and 241 on arm64. A
// verdict takes at most 12 of them, a condition 44 at worst (a socket of the last family), where a chain of comparisons
// takes one for each call. The kernel walks the program once for each number at load time, to cache the calls that are
// always allowed. Depth therefore determines the cost of loading; afterwards only calls with a condition run the
// program at all. Compiling takes some 70 microseconds; [Filter] does it once.
package seccomp

import (
	"slices"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// Policy lists the calls that a sandbox's processes may make. A call in no group is refused with EPERM.
type Policy struct {
	Name        string
	Allowed     []Group
	Conditional []Rule
	Refused     []Group
}

// Group is a list of calls with one reason.
type Group struct {
	Why   string
	Calls []string
	// Errno is the error of refused calls; zero means EPERM.
	Errno syscall.Errno
}

// Rule allows one call under a condition; otherwise it fails with EPERM.
type Rule struct {
	Why   string
	Call  string
	AnyOf []Match
	// Ignored are matches for which the call does nothing and reports success. They must be disjoint from AnyOf,
	// because engines do not promise an order.
	Ignored []Match
}

// Match holds when all its tests hold.
type Match []Test

// Test compares the low 32 bits of an argument: argument & Mask must be in the list, or not in it when Not is set.
type Test struct {
	Arg  int
	Mask uint32
	In   []uint32
	Not  bool
	// Pointer compares all 64 bits with null instead; Mask and In are empty.
	Pointer bool
}

// For returns the policy for the processes of a user: Agent for the id of cove.AgentUser, and Snippet, the stricter
// one, for any other.
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
		Group{
			Why:   "runs a program that was never a file, so that no file system rule has seen it",
			Calls: []string{"memfd_create"},
		},
		Group{
			Why: "watches files of a root file system that all sandboxes share, and so sees what neighbours and the host run; " +
				"programs fall back to looking again",
			Errno: syscall.ENOSYS,
			Calls: inotify(),
		})
	return p
}

// Agent returns the policy for coding agents: their browsers and language servers share memory through memfd_create,
// and their tools watch files.
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
