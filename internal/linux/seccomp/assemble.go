package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
)

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

// place makes l the next instruction.
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

// leaf is a stretch of the line in which all numbers except at most one go the same way. The exception costs one
// comparison instead of two.
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

// finish returns the program, first instruction first.
func (a *assembler) finish() (Program, error) {
	slices.Reverse(a.code)
	return bpf.Assemble(a.code)
}
