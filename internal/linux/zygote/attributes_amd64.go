//go:build linux

package zygote

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes sets what the kernel keeps of a process beside its memory.
func (t *tracee) attributes(i *Image, p *Program) error {
	stat, err := t.stat()
	if err != nil {
		return err
	}
	end, err := t.call(unix.SYS_BRK, 0)
	if err != nil {
		return err
	}
	auxv, err := t.read("auxv")
	if err != nil {
		return err
	}
	layout := Words(stat[startCode], stat[endCode], stat[startData], stat[endData], stat[startBreak], end,
		stat[startStack], stat[argStart], stat[argEnd], stat[envStart], stat[envLimit], p.Bytes(auxv),
		uint64(len(auxv))|firstFileFD<<32) // struct prctl_mm_map
	p.Do(unix.SYS_PRCTL, unix.PR_SET_MM, unix.PR_SET_MM_MAP, p.Bytes(layout), uint64(len(layout)), 0)
	name, err := t.read("comm")
	if err != nil {
		return err
	}
	p.Do(unix.SYS_PRCTL, unix.PR_SET_NAME, p.Bytes(append(name[:len(name)-1], 0)))
	p.Do(unix.SYS_ARCH_PRCTL, setFS, t.regs.Fs_base)
	if t.regs.Gs_base != 0 {
		return unsupported("it uses the segment register gs")
	}
	p.Want(uint64(i.PID), unix.SYS_GETPID)
	for ; len(auxv) >= 16; auxv = auxv[16:] { // what is drawn for each process; libraries may draw from it later
		if at := binary.NativeEndian.Uint64(auxv[8:]); binary.NativeEndian.Uint64(auxv) == atRandom {
			p.Want(randomSize, unix.SYS_GETRANDOM, at, randomSize, 0)
		}
	}
	if err := t.thread(i, p); err != nil {
		return err
	}
	return t.signals(p)
}

// thread registers what the C library has registered of its first thread.
func (t *tracee) thread(i *Image, p *Program) error {
	tid, err := t.ask(8, func(at uint64) error {
		_, err := t.call(unix.SYS_PRCTL, unix.PR_GET_TID_ADDRESS, at)
		return err
	})
	if err != nil {
		return err
	}
	p.Want(uint64(i.PID), unix.SYS_SET_TID_ADDRESS, binary.NativeEndian.Uint64(tid))
	robust, err := t.ask(16, func(at uint64) error {
		_, err := t.call(unix.SYS_GET_ROBUST_LIST, 0, at, at+8)
		return err
	})
	if err != nil {
		return err
	}
	if head := binary.NativeEndian.Uint64(robust); head != 0 {
		p.Do(unix.SYS_SET_ROBUST_LIST, head, binary.NativeEndian.Uint64(robust[8:]))
	}
	var rseq struct { // struct ptrace_rseq_configuration
		pointer                 uint64
		size, signature, flags_ uint32
		_                       uint32
	}
	const getRseq = 0x420f // PTRACE_GET_RSEQ_CONFIGURATION, 5.13
	if err := t.ptrace(getRseq, unsafe.Sizeof(rseq), unsafe.Pointer(&rseq)); err != nil {
		return err
	}
	if rseq.pointer != 0 {
		p.Do(unix.SYS_RSEQ, rseq.pointer, uint64(rseq.size), 0, uint64(rseq.signature))
	}
	return nil
}

// signals sets what the process does with signals, where that is not what every process does.
func (t *tracee) signals(p *Program) error {
	caught, err := t.mask("SigCgt")
	if err != nil {
		return err
	}
	ignored, err := t.mask("SigIgn")
	if err != nil {
		return err
	}
	const actionSize = 32 // struct sigaction of the kernel
	for all := caught | ignored; all != 0; all &= all - 1 {
		n := uint64(bits.TrailingZeros64(all) + 1)
		action, err := t.ask(actionSize, func(at uint64) error {
			_, err := t.call(unix.SYS_RT_SIGACTION, n, 0, at, 8)
			return err
		})
		if err != nil {
			return err
		}
		p.Do(unix.SYS_RT_SIGACTION, n, p.Bytes(action), 0, 8)
	}
	return nil
}
