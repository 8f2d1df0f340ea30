package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Load sets no_new_privs and a filter for every thread of this process and for all its future children. The filter
// cannot be removed.
func Load(filter []byte) error {
	// TSYNC passes no_new_privs of the calling thread to the others with the filter, so one thread must make both
	// calls.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return load(filter, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

func load(filter []byte, flags uintptr) error {
	if len(filter) == 0 || len(filter)%8 != 0 {
		return fmt.Errorf("a seccomp filter of %d bytes", len(filter))
	}
	code := make([]unix.SockFilter, len(filter)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&code[0])), len(filter)), filter)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}

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
