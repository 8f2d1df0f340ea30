//go:build linux

// Package load gives a seccomp filter to the kernel. It imports little, so that the guest can link it.
package load

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxInstructions is the kernel's bound of a filter (BPF_MAXINSNS).
const maxInstructions = 4096

// Filter sets no_new_privs and loads a filter, struct sock_filter, 8 bytes each, for this thread and its future
// children. With unix.SECCOMP_FILTER_FLAG_TSYNC every other thread of the process gets both too. The filter cannot be
// removed; one that was loaded before stays in force beside it.
func Filter(program []byte, flags uintptr) error {
	if len(program) == 0 || len(program)%8 != 0 || len(program)/8 > maxInstructions {
		return fmt.Errorf("a seccomp filter of %d bytes", len(program))
	}
	code := make([]unix.SockFilter, len(program)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&code[0])), len(program)), program)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// TSYNC passes no_new_privs of the calling thread on, so one thread must make both calls.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("load a seccomp filter of %d instructions: %w", len(code), errno)
	case thread != 0:
		return fmt.Errorf("thread %d has a seccomp filter of its own and cannot take this one", thread)
	}
	return nil
}
