package seccomp

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

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
	put := func(name string, v verdict) error {
		if !known[name] {
			return fmt.Errorf("policy %s: no such system call: %s", p.Name, name)
		}
		if _, twice := out[name]; twice {
			return fmt.Errorf("policy %s: two verdicts on %s", p.Name, name)
		}
		out[name] = v
		return nil
	}
	for _, g := range p.Allowed {
		for _, name := range g.Calls {
			if err := put(name, verdict{}); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range p.Refused {
		for _, name := range g.Calls {
			if err := put(name, verdict{errno: g.errno()}); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.Conditional {
		r := &p.Conditional[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		if err := put(r.Call, verdict{rule: r}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (g Group) errno() syscall.Errno {
	if g.Errno == 0 {
		return syscall.EPERM
	}
	return g.Errno
}

// check refuses a rule with an impossible or empty condition.
func (r Rule) check() error {
	if len(r.AnyOf) == 0 {
		return fmt.Errorf("%s: a condition without an alternative refuses everything", r.Call)
	}
	for _, m := range slices.Concat(r.AnyOf, r.Ignored) {
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
		v, named := verdicts[c.name]
		if !named {
			v = verdict{errno: syscall.EPERM}
		}
		known[uint32(n)] = v
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
