//go:build linux

package zygote

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// instructions execute the calls at rbx, until the number of one is negative: then they restore the registers from the
// address that it has. If a result is not as it has to be, they write 8 bytes to the descriptor in r12, and exit.
//
//	next: mov rax, [rbx];      test rax, rax;       js done
//	      mov rdi, [rbx+8];    mov rsi, [rbx+16];   mov rdx, [rbx+24]
//	      mov r10, [rbx+32];   mov r8, [rbx+40];    mov r9, [rbx+48]
//	      syscall
//	      cmp rax, [rbx+56];   jne fail
//	      add rbx, 72;         jmp next
//	fail: mov edi, r12d;       lea rsi, [rbx+64];   mov edx, 8;   mov eax, SYS_write;   syscall
//	      mov edi, 127;        mov eax, SYS_exit_group;           syscall
//	done: mov rsp, [rbx+8];    mov eax, SYS_rt_sigreturn;         syscall
var instructions = []byte{
	0x48, 0x8b, 0x03, 0x48, 0x85, 0xc0, 0x78, 0x45,
	0x48, 0x8b, 0x7b, 0x08, 0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x53, 0x18,
	0x4c, 0x8b, 0x53, 0x20, 0x4c, 0x8b, 0x43, 0x28, 0x4c, 0x8b, 0x4b, 0x30,
	0x0f, 0x05,
	0x48, 0x3b, 0x43, 0x38, 0x75, 0x06,
	0x48, 0x83, 0xc3, 0x48, 0xeb, 0xd2,
	0x44, 0x89, 0xe7, 0x48, 0x8d, 0x73, 0x40, 0xba, 0x08, 0, 0, 0, 0xb8, 0x01, 0, 0, 0, 0x0f, 0x05,
	0xbf, 0x7f, 0, 0, 0, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05,
	0x48, 0x8b, 0x63, 0x08, 0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05,
}

// context is struct ucontext of the kernel.
type context struct {
	flags, link             uint64
	stack                   [3]uint64
	r8, r9, r10, r11        uint64
	r12, r13, r14, r15      uint64
	rdi, rsi, rbp, rbx      uint64
	rdx, rax, rcx, rsp      uint64
	rip, eflags             uint64
	segments                uint64 // cs, gs, fs, ss of 16 bits
	err, trap, oldMask, cr2 uint64
	floats                  uint64 // 0: as a new process has them
	_                       [8]uint64
	mask                    uint64
}

const (
	contextSegments = 0x33 | 0x2b<<48 // of 64-bit programs
	contextFlags    = 0x6             // UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
	noStack         = 2               // SS_DISABLE
)

// frames are the place below the stack at which the last registers of a copy lie: two contexts, and an address between.
func (t *tracee) frames() Area {
	to := (t.regs.Rsp - redZone) &^ 15
	return Area{From: to - 2*uint64(unsafe.Sizeof(context{})) - 16, To: to}
}

// goOn has the process read from its pipe again. The instructions of a copy cannot remove themselves, so that the first
// registers are those of a call of munmap among the process's own instructions, which returns to one that restores the
// registers, and those are the process's.
func (t *tracee) goOn(i *Image, p *Program, f *os.File) error {
	syscall, err := t.find(0x0f, 0x05, 0xc3) // syscall; ret
	if err != nil {
		return err
	}
	sigreturn, err := t.find(0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05) // mov rax, SYS_rt_sigreturn; syscall
	if err != nil {
		return err
	}
	stack, err := t.ask(24, func(at uint64) error {
		_, err := t.call(unix.SYS_SIGALTSTACK, 0, at)
		return err
	})
	if err != nil {
		return err
	}
	var blocked uint64
	const getMask = 0x420a // PTRACE_GETSIGMASK
	if err := t.ptrace(getMask, 8, unsafe.Pointer(&blocked)); err != nil {
		return err
	}
	at, size := t.frames().From, uint64(unsafe.Sizeof(context{}))
	first := context{flags: contextFlags, stack: [3]uint64{0, noStack, 0}, segments: contextSegments,
		rax: unix.SYS_MUNMAP, rdi: i.Base, rsi: i.Size, rip: syscall, rsp: at + size, eflags: 0x202, mask: blocked}
	r := &t.regs
	last := context{flags: contextFlags, segments: contextSegments,
		r8: r.R8, r9: r.R9, r10: r.R10, r11: r.R11, r12: r.R12, r13: r.R13, r14: r.R14, r15: r.R15,
		rdi: r.Rdi, rsi: r.Rsi, rbp: r.Rbp, rbx: r.Rbx, rdx: r.Rdx, rax: r.Orig_rax, rcx: r.Rcx, rsp: r.Rsp,
		rip: r.Rip - 2, eflags: r.Eflags, mask: blocked}
	executor.Load(&last.stack, stack)
	text := slices.Concat(executor.Structure(first), Words(sigreturn), executor.Structure(last))
	if err := overlay(f, p, at, text); err != nil {
		return err
	}
	p.calls = append(p.calls, call{number: ^uint64(0), args: [6]uint64{at}})
	return nil
}

// overlay writes bytes into the pages of an image at an address.
func overlay(f *os.File, p *Program, at uint64, text []byte) error {
	for _, c := range p.calls {
		from, size, place := c.args[1], c.args[2], c.args[3]
		if c.number == unix.SYS_PREAD64 && from <= at && at+uint64(len(text)) <= from+size {
			_, err := f.WriteAt(text, int64(place+at-from))
			return err
		}
	}
	return fmt.Errorf("no page has the address %#x", at)
}

// find returns the address of instructions among those of the process.
func (t *tracee) find(text ...byte) (uint64, error) {
	for _, m := range t.maps {
		if m.Prot&unix.PROT_EXEC == 0 || !m.File() {
			continue
		}
		b, err := t.memory(m.From, int(m.To-m.From))
		if err != nil {
			return 0, err
		}
		if n := strings.Index(string(b), string(text)); n >= 0 {
			return m.From + uint64(n), nil
		}
	}
	return 0, unsupported("the instructions % x are missing", text)
}
