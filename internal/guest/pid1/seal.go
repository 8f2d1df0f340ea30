//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
)

// kept are the capabilities of a guest with an id of its own: to start processes as the user, and to signal them. They
// are bounded to the sandbox's user namespace, and children never get them.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// lastCap bounds the loop over capabilities, which ends earlier at the kernel's last one.
const lastCap = 63

// become changes every id of every thread and drops all supplementary groups. A user namespace made without privilege
// may not change groups; the caller's remain there, which "cove doctor" reports.
func become(uid, gid int) error {
	if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("leave the groups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("become group %d: %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}

// enclose drops all privileges, in an order in which each step is still permitted. The drop is irreversible.
func (w *world) enclose(s guest.Seal) error {
	if s.Pivot {
		if err := pivot(w.staging); err != nil {
			return err
		}
		unix.Close(w.staging)
	}
	syscall.Umask(0o022)
	if err := limits(s); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	if err := dropCapabilities(unix.Getuid() != s.UserUID); err != nil {
		return err
	}
	return loadFilter(s.Filter)
}

func limits(s guest.Seal) error {
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		// 1 is smaller than any core file, and the one value with which the kernel does not start the host's crash
		// handler (fs/coredump.c); 0 applies to files only. The seccomp policy preserves it.
		{unix.RLIMIT_CORE, 1},
		{unix.RLIMIT_NOFILE, uint64(s.OpenFiles)},
		{unix.RLIMIT_FSIZE, uint64(s.FileSize)},
		{unix.RLIMIT_MEMLOCK, 64 << 10},
	} {
		if l.value == 0 {
			continue
		}
		var have syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &have); err != nil {
			return err
		}
		v := min(l.value, have.Max) // raising would need a privilege on the host
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("resource limit %d: %w", l.resource, err)
		}
	}
	return nil
}

// dropCapabilities empties the bounding, ambient and inheritable sets, and reduces the permitted and effective ones to
// kept, or to nothing. The bounding and ambient sets are those of the main thread: they matter at an exec only, and
// every child comes from that thread.
func dropCapabilities(ownID bool) error {
	for c := uintptr(0); c <= lastCap; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // beyond the kernel's last
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if ownID {
		data[0].Permitted, data[0].Effective = kept, kept
	}
	err := everyThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data)))
	runtime.KeepAlive(&hdr)
	runtime.KeepAlive(&data)
	if err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// everyThread makes a system call on every thread of the process.
func everyThread(trap, a1, a2 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// loadFilter sets no_new_privs and loads a seccomp program on every thread; children inherit both. A filter that a
// container engine has loaded before stays in force beside it.
func loadFilter(program []byte) error {
	if len(program) == 0 || len(program)%8 != 0 || len(program)/8 > 4096 {
		return errors.New("the seccomp program is malformed")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// TSYNC gives the other threads both the filter and no_new_privs (seccomp(2)).
	fprog := unix.SockFprog{Len: uint16(len(program) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	r, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("load the seccomp filter: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("thread %d did not take the seccomp filter", r)
	}
	return nil
}

// setFSIDs sets this thread's file-system ids to the user's. The system call returns the old value and never an error,
// so a second call verifies the change.
func setFSIDs(uid, gid int) error {
	syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	none := ^uintptr(0)
	g, _, _ := syscall.RawSyscall(unix.SYS_SETFSGID, none, 0, 0)
	u, _, _ := syscall.RawSyscall(unix.SYS_SETFSUID, none, 0, 0)
	if int(g) != gid || int(u) != uid {
		return fmt.Errorf("the files thread could not become user %d", uid)
	}
	return nil
}
