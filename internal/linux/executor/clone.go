//go:build linux

package executor

import (
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	_ "unsafe" // for go:linkname
)

// The runtime lets package syscall prepare a fork by these.
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// area is the memory of the executors that this process forks, which each has its own copy of.
var area struct {
	sync.Mutex
	control *control
	err     error
}

// reserve makes area. Without pages, it costs nothing.
func reserve() (*control, error) {
	if area.control != nil || area.err != nil {
		return area.control, area.err
	}
	const fixedNoReplace = 0x100000 // MAP_FIXED_NOREPLACE, 4.17
	p, _, errno := syscall.Syscall6(unix.SYS_MMAP, base, memory, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|fixedNoReplace, ^uintptr(0), 0)
	if errno != 0 || p != base {
		area.err = os.NewSyscallError("mmap", errno)
		return nil, area.err
	}
	area.control = *(**control)(unsafe.Pointer(&p))
	return area.control, nil
}

// Clone forks an executor from this process, which has to be small: into new namespaces (CLONE_NEW* flags), and the
// control group of a directory, or that of the calling thread for -1. Before all else the executor enters the groups of
// version 1 whose files "tasks" it is given; where it cannot, it ends. Files are its standard input, output and error,
// and the connection; it gets no other.
func Clone(namespaces uintptr, group int, tasks []int, files [4]int) (pid int, err error) {
	if len(tasks) > maxFiles {
		return 0, unix.EMFILE
	}
	area.Lock()
	defer area.Unlock()
	c, err := reserve()
	if err != nil {
		return 0, err
	}
	for i, fd := range files {
		c.files[i] = int32(fd)
	}
	for i, fd := range tasks {
		c.given[i] = int32(fd)
	}
	c.givenN = uint64(len(tasks))
	args := cloneArgs{flags: uint64(namespaces), exitSignal: uint64(unix.SIGCHLD)}
	if group >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(group)
	}
	p, errno := clone(&args, c)
	if errno != 0 {
		return 0, os.NewSyscallError("clone", errno)
	}
	return int(p), nil
}

type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

//go:norace
//go:nosplit
//go:noinline
func clone(args *cloneArgs, c *control) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	if args.cgroup == 0 {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(args.flags|args.exitSignal), 0, 0, 0, 0, 0)
	} else {
		pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	}
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	live(c)
	return 0, 0
}
