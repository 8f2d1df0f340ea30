package seccomp

import (
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// OCI renders the policy for a container engine: the OCI runtime spec's form, which "docker run --security-opt
// seccomp=FILE" reads too. It lets a guest load its own program in any case.
//
// The profile is the outer of two walls: a sandbox's guest loads the program of Compile on top of it. Of two verdicts
// the kernel takes the stricter one, of two errors that of the filter which was loaded last. Alone, the engines' filter
// differs from the program in two points. First, a call through another ABI is judged by its name: where the profile
// omits such an ABI, the engine's library kills the calling thread, and the rest of the program hangs without it.
// Second, a number outside the table fails with ENOSYS where the runtime provides that (runc 1.0 and later, for numbers
// above all that the profile names) and with EPERM elsewhere. So refused calls are spelled out although the default
// refuses them, and the default's errno is left to the runtime.
func (p Policy) OCI(arch Arch) (*specs.LinuxSeccomp, error) {
	target, err := arch.abi()
	if err != nil {
		return nil, err
	}
	p = p.loadable()
	if _, err := p.resolve(); err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, c := range calls() {
		here[c.name] = target.number(c) != absent
	}
	out := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: target.oci}
	add := func(names []string, action specs.LinuxSeccompAction, errno syscall.Errno, args []specs.LinuxSeccompArg) {
		s := specs.LinuxSyscall{Action: action, Args: args}
		for _, name := range names {
			if here[name] {
				s.Names = append(s.Names, name)
			}
		}
		if action == specs.ActErrno {
			s.ErrnoRet = new(uint(errno))
		}
		if len(s.Names) > 0 {
			out.Syscalls = append(out.Syscalls, s)
		}
	}
	for _, g := range p.Allowed {
		add(g.Calls, specs.ActAllow, 0, nil)
	}
	for _, r := range p.Conditional {
		for _, o := range r.outcomes() {
			action := specs.ActErrno
			if o.action == unix.SECCOMP_RET_ALLOW {
				action = specs.ActAllow
			}
			for _, m := range o.matches {
				for _, args := range m.conjunctions() {
					add([]string{r.Call}, action, syscall.Errno(o.action&unix.SECCOMP_RET_DATA), args)
				}
			}
		}
	}
	for _, g := range p.Refused {
		add(g.Calls, specs.ActErrno, g.errno(), nil)
	}
	return out, nil
}

// conjunctions expands a match for a library that supports "argument under mask equals value" and "and" between
// arguments, but neither "one of" nor "none of": one list of comparisons for every combination.
func (m Match) conjunctions() [][]specs.LinuxSeccompArg {
	out := [][]specs.LinuxSeccompArg{nil}
	for _, t := range m {
		var next [][]specs.LinuxSeccompArg
		for _, arg := range t.comparisons() {
			arg.Index = uint(t.Arg)
			for _, head := range out {
				next = append(next, append(head[:len(head):len(head)], arg))
			}
		}
		out = next
	}
	return out
}

// comparisons returns the test as alternative comparisons, with the index unset.
func (t Test) comparisons() []specs.LinuxSeccompArg {
	switch {
	case t.Pointer && t.Not:
		return []specs.LinuxSeccompArg{{Op: specs.OpNotEqual}}
	case t.Pointer:
		return []specs.LinuxSeccompArg{{Op: specs.OpEqualTo}}
	}
	var out []specs.LinuxSeccompArg
	for _, c := range t.cubes() {
		out = append(out, specs.LinuxSeccompArg{Op: specs.OpMaskedEqual, Value: uint64(c.mask), ValueTwo: uint64(c.value)})
	}
	return out
}

// cube is the set of 32-bit numbers that equal value under mask.
type cube struct{ mask, value uint32 }

func (t Test) cubes() []cube {
	if t.Not {
		return complement(t.Mask, t.In, 31, cube{})
	}
	var out []cube
	for _, v := range t.In {
		out = append(out, cube{t.Mask, v})
	}
	return out
}

// complement covers the part of c whose bits under mask equal none of values. It splits c at the given bit and the ones
// below; a half without values is a cube of the result.
func complement(mask uint32, values []uint32, bit int, c cube) []cube {
	if len(values) == 0 {
		return []cube{c}
	}
	for bit >= 0 && mask>>bit&1 == 0 {
		bit--
	}
	if bit < 0 {
		return nil
	}
	var halves [2][]uint32
	for _, v := range values {
		b := v >> bit & 1
		halves[b] = append(halves[b], v)
	}
	var out []cube
	for b, inside := range halves {
		half := cube{c.mask | 1<<bit, c.value | uint32(b)<<bit}
		out = append(out, complement(mask, inside, bit-1, half)...)
	}
	return out
}
