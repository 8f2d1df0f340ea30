package seccomp

import (
	"encoding/binary"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/net/bpf"

	"github.com/cove-sandbox/cove"
)

// Program is a filter in the kernel's format.
type Program []bpf.RawInstruction

// Bytes returns the program as struct sock_filter[], 8 bytes each, little endian.
func (p Program) Bytes() []byte {
	b := make([]byte, 0, 8*len(p))
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b
}

// Filter returns the policy for the processes of a user, compiled once for this machine.
func Filter(u cove.User) ([]byte, error) {
	if u.UID == cove.AgentUser.UID {
		return agentFilter()
	}
	return snippetFilter()
}

var (
	snippetFilter = sync.OnceValues(func() ([]byte, error) { return Snippet().filter() })
	agentFilter   = sync.OnceValues(func() ([]byte, error) { return Agent().filter() })
)

func (p Policy) filter() ([]byte, error) {
	prog, err := p.Compile(HostArch())
	return prog.Bytes(), err
}

// Offsets in struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16 // 8 bytes each, low word first on both architectures
)

// Return values of a filter (SECCOMP_RET_*).
const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000

	// retIgnore skips the call and reports success (errno 0).
	retIgnore = retErrno
)

func retFor(e syscall.Errno) uint32 {
	if e == 0 {
		return retAllow
	}
	return retErrno | uint32(e)
}

// Compile makes the filter program for an architecture, on any machine.
func (p Policy) Compile(arch Arch) (Program, error) {
	target, err := arch.abi()
	if err != nil {
		return nil, err
	}
	verdicts, err := p.resolve()
	if err != nil {
		return nil, err
	}
	var a assembler
	conditions := map[*Rule]label{}
	for i := range p.Conditional {
		conditions[&p.Conditional[i]] = a.condition(p.Conditional[i])
	}
	var ranges []span
	for _, n := range byNumber(verdicts, target) {
		to := ret(retFor(n.errno))
		if n.rule != nil {
			to = conditions[n.rule]
		}
		ranges = append(ranges, span{n.start, to})
	}
	body := a.load(offsetNumber, a.search(ranges))
	a.load(offsetArch, a.jump(bpf.JumpEqual, target.audit, body, ret(retFor(syscall.EPERM))))
	return a.finish()
}

// condition emits a rule: its alternatives in turn.
func (a *assembler) condition(r Rule) label {
	next := a.anyOf(r.Ignored, ret(retIgnore), ret(retFor(syscall.EPERM)))
	return a.anyOf(r.AnyOf, ret(retAllow), next)
}

func (a *assembler) anyOf(matches []Match, yes, no label) label {
	for _, m := range slices.Backward(matches) {
		pass := yes
		for _, t := range slices.Backward(m) {
			pass = a.test(t, pass, no)
		}
		no = pass
	}
	return no
}

// test emits one comparison of an argument.
func (a *assembler) test(t Test, pass, fail label) label {
	if t.Not {
		pass, fail = fail, pass
	}
	low := uint32(offsetArgs + 8*t.Arg)
	if t.Pointer {
		null := a.load(low, a.jump(bpf.JumpEqual, 0, pass, fail))
		return a.load(low+4, a.jump(bpf.JumpEqual, 0, null, fail))
	}
	entry := a.search(membership(t.In, pass, fail))
	if t.Mask != all32 {
		entry = a.mask(t.Mask, entry)
	}
	return a.load(low, entry)
}

// membership returns the number line with the given values going to in, all others to out.
func membership(values []uint32, in, out label) []span {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	line := []span{{0, out}}
	for _, v := range values {
		if last := &line[len(line)-1]; last.start == v {
			last.to = in
			if len(line) > 1 && line[len(line)-2].to == in {
				line = line[:len(line)-1] // the value continues a run
			}
		} else {
			line = append(line, span{v, in})
		}
		if v != all32 {
			line = append(line, span{v + 1, out})
		}
	}
	return line
}
