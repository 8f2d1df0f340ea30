package seccomp

import (
	"slices"
	"sync"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Filter returns the policy for processes, as For has it, compiled once for this machine.
func Filter(p Processes) ([]byte, error) { return filters()[p.name()]() }

var filters = sync.OnceValue(func() map[string]func() ([]byte, error) {
	all := map[string]func() ([]byte, error){}
	for name, policy := range policies() {
		all[name] = sync.OnceValues(func() ([]byte, error) {
			prog, err := policy().Compile(HostArch())
			return prog.Bytes(), err
		})
	}
	return all
})

// Offsets in struct seccomp_data.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16 // 8 bytes each, low word first on both architectures
)

// retIgnore skips the call and reports success (errno 0).
const retIgnore = unix.SECCOMP_RET_ERRNO

func retFor(e syscall.Errno) uint32 {
	if e == 0 {
		return unix.SECCOMP_RET_ALLOW
	}
	return unix.SECCOMP_RET_ERRNO | uint32(e)
}

// outcome is a return value of the kernel for calls that match.
type outcome struct {
	matches []Match
	action  uint32
}

func (r Rule) outcomes() []outcome {
	return []outcome{{r.AnyOf, unix.SECCOMP_RET_ALLOW}, {r.Ignored, retIgnore},
		{r.Unknown, retFor(syscall.EPROTONOSUPPORT)}}
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

func (a *assembler) condition(r Rule) label {
	next := ret(retFor(syscall.EPERM))
	for _, o := range slices.Backward(r.outcomes()) {
		next = a.anyOf(o.matches, ret(o.action), next)
	}
	return next
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

// assembler emits a program from its end to its start, so that every jump's
// target is known when the jump is emitted. BPF jumps go forward only.
type assembler struct {
	code []bpf.Instruction // the program's last instruction first
	rets map[uint32]int    // where each value was last returned
}

// label is a jump target: an emitted instruction, or a return value, which is emitted on demand.
type label struct {
	at    int // index in code
	value uint32
	isRet bool
}

func ret(value uint32) label { return label{value: value, isRet: true} }

// span maps numbers from start on, up to the next span, to a label.
type span struct {
	start uint32
	to    label
}

func (a *assembler) emit(i bpf.Instruction) label {
	a.code = append(a.code, i)
	return label{at: len(a.code) - 1}
}

// reach bounds a conditional jump: 255, less the instructions that resolving its other target may insert.
const reach = 250

// near returns the index of an instruction with l's effect, within reach of the next jump.
func (a *assembler) near(l label) int {
	at, emitted := l.at, true
	if l.isRet {
		at, emitted = a.rets[l.value]
	}
	if emitted && len(a.code)-at <= reach {
		return at
	}
	return a.place(l)
}

func (a *assembler) place(l label) int {
	switch {
	case l.isRet:
		if a.rets == nil {
			a.rets = map[uint32]int{}
		}
		a.rets[l.value] = len(a.code)
		return a.emit(bpf.RetConstant{Val: l.value}).at
	case l.at == len(a.code)-1:
		return l.at
	}
	return a.emit(bpf.Jump{Skip: uint32(len(a.code) - l.at - 1)}).at
}

func (a *assembler) jump(cond bpf.JumpTest, value uint32, yes, no label) label {
	t, f := a.near(yes), a.near(no)
	next := len(a.code) - 1
	return a.emit(bpf.JumpIf{Cond: cond, Val: value, SkipTrue: uint8(next - t), SkipFalse: uint8(next - f)})
}

func (a *assembler) load(offset uint32, then label) label {
	a.place(then)
	return a.emit(bpf.LoadAbsolute{Off: offset, Size: 4})
}

func (a *assembler) mask(mask uint32, then label) label {
	a.place(then)
	return a.emit(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
}

// search emits a balanced binary search of the loaded number in the line.
func (a *assembler) search(line []span) label { return a.tree(leaves(line)) }

// leaf is a stretch of the line in which all numbers but at most one go the same way; that one costs one comparison.
type leaf struct {
	span
	except bool
	value  uint32
	other  label
}

func leaves(line []span) []leaf {
	var out []leaf
	for i := 0; i < len(line); i++ {
		l := leaf{span: line[i]}
		if i+2 < len(line) && line[i+2].start == line[i+1].start+1 && line[i+2].to == line[i].to {
			l.except, l.value, l.other = true, line[i+1].start, line[i+1].to
			i += 2
		}
		out = append(out, l)
	}
	return out
}

func (a *assembler) tree(ls []leaf) label {
	if len(ls) == 1 {
		if l := ls[0]; l.except {
			return a.jump(bpf.JumpEqual, l.value, l.other, l.to)
		}
		return ls[0].to
	}
	mid := len(ls) / 2
	right := a.tree(ls[mid:])
	left := a.tree(ls[:mid])
	return a.jump(bpf.JumpGreaterOrEqual, ls[mid].start, right, left)
}

func (a *assembler) finish() (Program, error) {
	slices.Reverse(a.code)
	return bpf.Assemble(a.code)
}
