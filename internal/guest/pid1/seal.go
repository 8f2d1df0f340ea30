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

// kept are the capabilities the guest keeps when it has an id of its own: to
// start processes as the user, and to signal them. They are bounded to the
// sandbox's user namespace, and no child has them.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// lastCap is tried upward until the kernel knows no more.
const lastCap = 63

// become changes every id of every thread, and leaves all groups. A user
// namespace made without privilege may not change groups; there the caller's
// remain, which doctor says.
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

// enclose gives up everything, in an order in which each step is still
// possible. Afterwards nothing of it can be taken back.
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
		// Less than any core file has, and the one value with which the kernel
		// does not hand a crash to the host's handler either (fs/coredump.c); 0
		// is about files only. The seccomp policy keeps it so.
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

// dropCapabilities empties the bounding, ambient and inheritable sets, and the
// permitted and effective ones down to kept or to nothing. The bounding and
// ambient sets are those of the main thread, from which every child comes:
// they matter at an exec only, and no other thread does one.
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

// everyThread does a system call on every thread of the process.
func everyThread(trap, a1, a2 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// loadFilter forbids new privileges and loads a seccomp program, on every
// thread; children inherit both. What a container engine has loaded before the
// guest began stays in force beside it.
func loadFilter(program []byte) error {
	if len(program) == 0 || len(program)%8 != 0 || len(program)/8 > 4096 {
		return errors.New("the seccomp program is malformed")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// TSYNC gives the other threads both the filter and no_new_privs (seccomp(2)).
	fprog := unix.SockFprog{Len: uint16(len(program) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	r, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("load the seccomp filter: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("thread %d did not take the seccomp filter", r)
	}
	return nil
}

// setFSIDs gives this thread the file-system ids of the user. The kernel
// answers with the old value and never with an error, so it is asked again.
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
