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
// The program is a balanced binary search over ranges of call numbers: 258 instructions on amd64 and 246 on arm64. A
// verdict takes at most 12 of them, a condition 44 at worst (a socket of the last family), where a chain of comparisons
// takes one for each call. The kernel walks the program once for each number at load time, to cache the calls that are
// always allowed. Depth therefore determines the cost of loading; afterwards only calls with a condition run the
// program at all. Compiling takes some 70 microseconds; [Filter] does it once.
package seccomp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
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
	// Ignored are matches, disjoint from AnyOf (engines promise no order), for which the call only reports success.
	Ignored []Match
	// Unknown are matches, disjoint from both, for which the call fails with EPROTONOSUPPORT, as on a kernel without the
	// protocol: programs go on without it, and would end for want of a permission.
	Unknown []Match
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

// verdict is the policy's decision on one call: a condition when rule is set, else an errno, 0 for allowed.
type verdict struct {
	errno syscall.Errno
	rule  *Rule
}

// resolve returns the verdict on every call of the policy, and refuses a contradictory policy.
func (p Policy) resolve() (map[string]verdict, error) {
	known := make(map[string]bool, len(calls()))
	for _, c := range calls() {
		known[c.name] = true
	}
	out := make(map[string]verdict, len(calls()))
	var err error // the first contradiction
	put := func(v verdict, names ...string) {
		for _, name := range names {
			if _, twice := out[name]; twice {
				err = cmp.Or(err, fmt.Errorf("policy %s: two verdicts on %s", p.Name, name))
			}
			if !known[name] {
				err = cmp.Or(err, fmt.Errorf("policy %s: no such system call: %s", p.Name, name))
			}
			out[name] = v
		}
	}
	for _, g := range p.Allowed {
		put(verdict{}, g.Calls...)
	}
	for _, g := range p.Refused {
		put(verdict{errno: g.errno()}, g.Calls...)
	}
	for i := range p.Conditional {
		r := &p.Conditional[i]
		if wrong := r.check(); wrong != nil {
			err = cmp.Or(err, fmt.Errorf("policy %s: %w", p.Name, wrong))
		}
		put(verdict{rule: r}, r.Call)
	}
	return out, err
}

func (g Group) errno() syscall.Errno { return cmp.Or(g.Errno, syscall.EPERM) }

func (r Rule) check() error {
	if len(r.AnyOf) == 0 {
		return fmt.Errorf("%s: a condition without an alternative refuses everything", r.Call)
	}
	for _, m := range slices.Concat(r.AnyOf, r.Ignored, r.Unknown) {
		if len(m) == 0 {
			return fmt.Errorf("%s: an empty alternative holds for everything", r.Call)
		}
		tested := map[int]bool{}
		for _, t := range m {
			if t.Arg < 0 || t.Arg > 5 || tested[t.Arg] {
				return fmt.Errorf("%s: argument %d does not exist or is tested twice in one alternative", r.Call, t.Arg)
			}
			tested[t.Arg] = true
			if err := t.check(); err != nil {
				return fmt.Errorf("%s: argument %d: %w", r.Call, t.Arg, err)
			}
		}
	}
	return nil
}

func (t Test) check() error {
	if t.Pointer {
		if t.Mask != 0 || len(t.In) != 0 {
			return errors.New("a pointer is compared with null, not with values")
		}
		return nil
	}
	if len(t.In) == 0 {
		return errors.New("a test against nothing")
	}
	for _, v := range t.In {
		if v&^t.Mask != 0 {
			return fmt.Errorf("%#x cannot be equal to anything under mask %#x", v, t.Mask)
		}
	}
	return nil
}

// numbered is the verdict on every number from start to the next entry's start.
type numbered struct {
	start uint32
	verdict
}

// byNumber lays the verdicts out along the line of all 2^32 numbers.
func byNumber(verdicts map[string]verdict, target abi) []numbered {
	known := map[uint32]verdict{}
	var last uint32
	for _, c := range calls() {
		n := target.number(c)
		if n == absent {
			continue
		}
		known[uint32(n)] = verdict{errno: syscall.EPERM}
		if v, named := verdicts[c.name]; named {
			known[uint32(n)] = v
		}
		last = max(last, uint32(n))
	}
	unknown := verdict{errno: syscall.ENOSYS}
	var line []numbered
	add := func(start uint32, v verdict) {
		if len(line) == 0 || line[len(line)-1].verdict != v {
			line = append(line, numbered{start, v})
		}
	}
	for n := range last + 1 {
		v, ok := known[n]
		if !ok {
			v = unknown
		}
		add(n, v)
	}
	add(last+1, unknown)
	if target.foreign != 0 {
		add(target.foreign, verdict{errno: syscall.EPERM})
	}
	return line
}
