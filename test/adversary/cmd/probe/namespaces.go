package main

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaces are attempts to make or enter one (K4).
func namespaces() map[string]attempt {
	return map[string]attempt{
		"unshare":        unshare,
		"clone":          cloneWith,
		"clone3":         clone3,
		"clone3_plain":   simple(func() error { return cloneThree(0) }),
		"fork":           simple(func() error { return child(0) }),
		"setns":          setns,
		"setns_pidfd":    simple(setnsPidfd),
		"ns":             nsInodes,
		"unshare_deep":   simple(unshareDeep),
		"clone_sweep":    cloneSweep,
		"uid_map":        simple(func() error { return openFor("/proc/self/uid_map", unix.O_WRONLY) }),
		"sethostname":    simple(func() error { return call(unix.SYS_SETHOSTNAME, text("probe"), 5) }),
		"setdomainname":  simple(func() error { return call(unix.SYS_SETDOMAINNAME, text("probe"), 5) }),
		"unshare_files":  simple(func() error { return unix.Unshare(unix.CLONE_FILES) }),
		"unshare_fs_sem": simple(func() error { return unix.Unshare(unix.CLONE_FS | unix.CLONE_SYSVSEM) }),
	}
}

// unshare makes namespaces FLAGS.
func unshare(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, call(unix.SYS_UNSHARE, v[0])
}

// cloneWith clones a child with FLAGS that exits at once.
func cloneWith(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, child(v[0])
}

// child clones a process that exits at once.
func child(flags uintptr) error {
	return reap(exiting(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0))
}

// exiting makes a process that exits at once. The child has none of the runtime's other threads, so it must not come to
// where a stack is grown or handed to somebody else: at the beginning of a function.
//
//go:nosplit
func exiting(nr, a1, a2 uintptr) (pid uintptr, _ unix.Errno) {
	pid, _, errno := unix.RawSyscall6(nr, a1, a2, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return pid, errno
}

func reap(pid uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	var status unix.WaitStatus
	_, err := unix.Wait4(int(pid), &status, 0, nil)
	return err
}

type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal uint64
	_          [6]uint64 // stack, stack_size, tls, set_tid, set_tid_size, cgroup
}

func cloneThree(flags uint64) error {
	a := &cloneArgs{flags: flags, exitSignal: uint64(unix.SIGCHLD)}
	return reap(exiting(unix.SYS_CLONE3, at(a), unsafe.Sizeof(*a)))
}

func clone3(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, cloneThree(uint64(v[0]))
}

// setns enters namespace KIND of process PID.
func setns(args []string) (report, error) {
	fd, err := unix.Open("/proc/"+args[0]+"/ns/"+args[1], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	return report{}, call(unix.SYS_SETNS, uintptr(fd), 0)
}

// setnsPidfd enters PID 1's namespaces by a pidfd, which needs no /proc.
func setnsPidfd() error {
	fd, err := value(unix.SYS_PIDFD_OPEN, 1, 0)
	if err != nil {
		return call(unix.SYS_SETNS, all, unix.CLONE_NEWUTS)
	}
	defer unix.Close(int(fd))
	return call(unix.SYS_SETNS, fd, unix.CLONE_NEWUTS|unix.CLONE_NEWNET)
}

// nsNames are the kinds of namespaces that a sandbox has for itself.
func nsNames() []string { return []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} }

// nsInodes reports the namespaces of the caller.
func nsInodes([]string) (report, error) {
	var r report
	for _, name := range nsNames() {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return r, err
		}
		r.lines = append(r.lines, link)
	}
	return r, nil
}

// unshareDeep is the usual escape's first step: a user namespace of one's own and a mount inside it.
func unshareDeep() error {
	if err := unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// cloneSweep tries every flag of clone in the bits that could make a namespace, with high bits set too that the kernel
// ignores, and reports those that came through.
func cloneSweep([]string) (report, error) {
	namespaceBits := []uint{7, 17, 25, 26, 27, 28, 29, 30} // time, mnt, cgroup, uts, ipc, user, pid, net
	var r report
	for bit := uint(0); bit < 64; bit++ {
		flags := uintptr(1) << bit
		if !slices.Contains(namespaceBits, bit) {
			continue
		}
		for _, high := range []uintptr{0, 1 << 32, 1 << 63} {
			if err := call(unix.SYS_UNSHARE, flags|high); err != unix.EPERM && err != unix.ENOSYS {
				r.lines = append(r.lines, fmt.Sprintf("unshare %#x: %v", flags|high, err))
			}
			if bit == 7 {
				continue // clone's exit signal; the time namespace has unshare and clone3 only
			}
			if err := child(flags | high); err != unix.EPERM && err != unix.ENOSYS {
				r.lines = append(r.lines, fmt.Sprintf("clone %#x: %v", flags|high, err))
			}
		}
	}
	if len(r.lines) == 0 {
		return r, unix.EPERM
	}
	return r, nil
}
