package main

import (
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
)

// call32 enters the kernel through int 0x80, the 32-bit door of x86-64.
func call32(nr, a1, a2, a3, a4, a5 uintptr) int32

// int80 makes a 32-bit system call. It returns ENOSYS where the instruction has no gate and is answered with a fault:
// on some virtual machines, and on kernels without 32-bit emulation.
func int80(nr uintptr, args ...uintptr) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = unix.ENOSYS
		}
	}()
	var a [5]uintptr
	copy(a[:], args)
	if r := call32(nr, a[0], a[1], a[2], a[3], a[4]); r < 0 && r > -4096 {
		return unix.Errno(-r)
	}
	return nil
}

// Numbers of the 32-bit table.
const (
	i386Getpid       = 20
	i386Mount        = 21
	i386Ptrace       = 26
	i386Socketcall   = 102
	i386Clone        = 120
	i386Personality  = 136
	i386Keyctl       = 288
	i386Unshare      = 310
	i386PerfEvent    = 336
	i386Bpf          = 357
	i386Socket       = 359
	i386IoUringSetup = 425
)

// archCalls are attempts that only x86-64 has: port access, segment tables and the two other system call tables.
func archCalls() map[string]attempt {
	return map[string]attempt{
		"iopl":             simple(func() error { return call(unix.SYS_IOPL, 3) }),
		"ioperm":           simple(func() error { return call(unix.SYS_IOPERM, 0x80, 1, 1) }),
		"modify_ldt":       simple(func() error { var b [64]byte; return call(unix.SYS_MODIFY_LDT, 0, at(&b), 64) }),
		"modify_ldt_write": simple(modifyLdtWrite),
		"uselib":           simple(func() error { return call(unix.SYS_USELIB, text("/no/such/file")) }),
		"sysfs":            simple(func() error { return call(unix.SYS_SYSFS, 3) }),
		"ustat":            simple(func() error { var b [64]byte; return call(unix.SYS_USTAT, 0, at(&b)) }),
		"_sysctl":          simple(func() error { return call(unix.SYS__SYSCTL, 0) }),
		"create_module":    simple(func() error { return call(unix.SYS_CREATE_MODULE, 0, 0) }),

		"x32_getpid":     simple(func() error { return call(0x40000000 | unix.SYS_GETPID) }),
		"x32_ptrace":     simple(func() error { return call(0x40000000|521, unix.PTRACE_TRACEME) }),
		"x32_unshare":    simple(func() error { return call(0x40000000|unix.SYS_UNSHARE, unix.CLONE_NEWUSER) }),
		"int80_getpid":   simple(func() error { return int80(i386Getpid) }),
		"int80_mount":    simple(func() error { return int80(i386Mount, 0, 0, 0, 0, 0) }),
		"int80_ptrace":   simple(func() error { return int80(i386Ptrace, unix.PTRACE_SEIZE, 1, 0, 0) }),
		"int80_unshare":  simple(func() error { return int80(i386Unshare, unix.CLONE_NEWUTS) }),
		"int80_keyctl":   simple(func() error { return int80(i386Keyctl, unix.KEYCTL_GET_KEYRING_ID, minus(2), 1) }),
		"int80_bpf":      simple(func() error { return int80(i386Bpf, 99, 0, 0) }),
		"int80_perf":     simple(func() error { return int80(i386PerfEvent, 0, 0, all, all, 0) }),
		"int80_io_uring": simple(func() error { return int80(i386IoUringSetup, 1, 0) }),
		"int80_persona":  simple(func() error { return int80(i386Personality, 0x0400000) }),
		// EINVAL when reached
		"int80_clone":     simple(func() error { return int80(i386Clone, unix.CLONE_NEWUSER|unix.CLONE_THREAD, 0) }),
		"int80_socket":    socket32(false),
		"int80_sockcall":  socket32(true),
		"getpid32_exists": simple(func() error { return int80(i386Getpid) }),
	}
}

// socket32 makes a socket FAMILY TYPE PROTOCOL through the 32-bit table:
// socket itself, or socketcall, whose arguments no filter can read.
func socket32(viaSocketcall bool) attempt {
	return func(args []string) (report, error) {
		var v [3]uint32
		for i := range v {
			n, err := strconv.ParseUint(args[i], 0, 32)
			if err != nil {
				return report{}, err
			}
			v[i] = uint32(n)
		}
		if !viaSocketcall {
			return report{}, int80(i386Socket, uintptr(v[0]), uintptr(v[1]), uintptr(v[2]))
		}
		low, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
		if err != nil {
			return report{}, err
		}
		*(*[3]uint32)(low) = v
		return report{}, int80(i386Socketcall, 1 /* SYS_SOCKET */, uintptr(low))
	}
}

// modifyLdtWrite installs a 16-bit segment, which espfix attacks need.
func modifyLdtWrite() error {
	desc := [4]uint32{0, 0, 0xfff, 0}
	return call(unix.SYS_MODIFY_LDT, 1, at(&desc), 16)
}

func archUnsweepable() []int {
	return []int{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PAUSE}
}

func creat(path string, mode uint32) error {
	fd, err := value(unix.SYS_CREAT, text(path), uintptr(mode))
	return closing(fd, err)
}

// replaceCall changes the call that a traced process is about to make.
func replaceCall(pid int, number, argument uint64) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	r.Orig_rax, r.Rdi = number, argument
	return unix.PtraceSetRegs(pid, &r)
}

// answerOf returns what a call has answered a traced process.
func answerOf(pid int) (int64, error) {
	var r unix.PtraceRegs
	err := unix.PtraceGetRegs(pid, &r)
	return int64(r.Rax), err
}
