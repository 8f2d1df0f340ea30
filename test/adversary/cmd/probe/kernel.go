package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelCalls are system calls that no sandbox needs (K1, K3). Arguments are
// such that a call that reaches the kernel as root changes nothing.
func kernelCalls() map[string]attempt {
	calls := map[string]attempt{
		"io_uring_setup": simple(func() error {
			var params [120]byte
			fd, err := value(unix.SYS_IO_URING_SETUP, 1, at(&params))
			return closing(fd, err)
		}),
		"io_uring_enter":    simple(func() error { return call(unix.SYS_IO_URING_ENTER, all, 0, 0, 0, 0, 0) }),
		"io_uring_register": simple(func() error { return call(unix.SYS_IO_URING_REGISTER, all, 0, 0, 0) }),

		"bpf_map_create":    simple(bpfMap),
		"bpf_prog_load":     simple(bpfProgram),
		"perf_event_open":   simple(perfEvent),
		"userfaultfd":       simple(func() error { fd, err := value(unix.SYS_USERFAULTFD, unix.O_CLOEXEC); return closing(fd, err) }),
		"userfaultfd_user":  simple(func() error { fd, err := value(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1); return closing(fd, err) }),
		"kexec_file_load":   simple(func() error { return call(unix.SYS_KEXEC_FILE_LOAD, all, all, 0, 0, 0xf000) }),
		"kexec_load":        simple(func() error { return call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0x8000) }),
		"init_module":       simple(func() error { return call(unix.SYS_INIT_MODULE, 0, 0, text("")) }),
		"finit_module":      simple(func() error { return call(unix.SYS_FINIT_MODULE, all, text(""), 0) }),
		"delete_module":     simple(func() error { return call(unix.SYS_DELETE_MODULE, text("cove_no_such_module"), unix.O_NONBLOCK) }),
		"keyctl":            simple(func() error { return call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, minus(2), 1) }),
		"add_key":           simple(func() error { return call(unix.SYS_ADD_KEY, text("user"), text("cove-probe"), text("x"), 1, minus(2)) }),
		"request_key":       simple(func() error { return call(unix.SYS_REQUEST_KEY, text("user"), text("cove-no-such-key"), 0, 0) }),
		"kcmp":              simple(func() error { return call(unix.SYS_KCMP, uintptr(unix.Getpid()), 1, 1, 0, 0) }),
		"open_by_handle_at": simple(openByHandle),
		"name_to_handle_at": simple(nameToHandle),
		"fanotify_init": simple(func() error {
			fd, err := value(unix.SYS_FANOTIFY_INIT, unix.FAN_REPORT_FID, 0)
			return closing(fd, err)
		}),
		"quotactl":            simple(func() error { return call(unix.SYS_QUOTACTL, 0x800005<<8, text("/no/such/device"), 0, 0) }),
		"quotactl_fd":         simple(func() error { return call(unix.SYS_QUOTACTL_FD, all, 0x800005<<8, 0, 0) }),
		"acct":                simple(func() error { return call(unix.SYS_ACCT, text("/no/such/file")) }),
		"syslog":              simple(func() error { return call(unix.SYS_SYSLOG, 10, 0, 0) }),
		"syslog_read":         simple(syslogRead),
		"personality_exec":    simple(func() error { return call(unix.SYS_PERSONALITY, 0x0400000) }),
		"personality_noaslr":  simple(func() error { return call(unix.SYS_PERSONALITY, 0x0040000) }),
		"personality_default": simple(func() error { return call(unix.SYS_PERSONALITY, 0) }),
		"swapon":              simple(func() error { return call(unix.SYS_SWAPON, text("/no/such/file"), 0) }),
		"swapoff":             simple(func() error { return call(unix.SYS_SWAPOFF, text("/no/such/file")) }),
		"reboot":              simple(func() error { return call(unix.SYS_REBOOT, 0, 0, 0, 0) }), // wrong magic: EINVAL
		"settimeofday":        simple(func() error { return call(unix.SYS_SETTIMEOFDAY, 0, 0) }),
		"clock_settime":       simple(clockSettime),
		"adjtimex":            simple(adjtimex),
		"migrate_pages":       simple(func() error { return call(unix.SYS_MIGRATE_PAGES, 1, 0, 0, 0) }),
		"move_pages":          simple(func() error { return call(unix.SYS_MOVE_PAGES, 1, 0, 0, 0, 0, 0) }),
		"process_madvise":     simple(func() error { return call(unix.SYS_PROCESS_MADVISE, all, 0, 0, 0, 0) }),
		"vhangup_int":         simple(func() error { return call(unix.SYS_VHANGUP) }),
		"memfd_create":        simple(func() error { fd, err := value(unix.SYS_MEMFD_CREATE, text("cove"), 1); return closing(fd, err) }),
		"memfd_secret":        simple(func() error { fd, err := value(unix.SYS_MEMFD_SECRET, 0); return closing(fd, err) }),
		"pidfd_getfd":         simple(pidfdGetfd),
		"seccomp_listener":    simple(seccompListener),
		"getpid":              simple(func() error { return call(unix.SYS_GETPID) }),
		"lookup_dcookie":      simple(func() error { return call(unix.SYS_LOOKUP_DCOOKIE, 0, 0, 0) }),
		"nfsservctl":          simple(func() error { return call(unix.SYS_NFSSERVCTL, 0, 0, 0) }),
		"process_vm_writev":   simple(func() error { return processVM(unix.SYS_PROCESS_VM_WRITEV, 1) }),
		"process_vm_readv":    simple(func() error { return processVM(unix.SYS_PROCESS_VM_READV, 1) }),
		"ptrace_init":         simple(func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0) }),
		"ptrace_child": simple(func() error {
			return withChild(func(pid int) error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0) })
		}),
		"process_vm_child": simple(func() error {
			return withChild(func(pid int) error { return processVM(unix.SYS_PROCESS_VM_READV, pid) })
		}),
		"sweep": sweep,
		"fuzz":  fuzz,
	}
	return calls
}

// minus is -n as a call's argument.
func minus(n int) uintptr { return uintptr(-n) }

// closing closes what a call returned: an attempt leaves nothing open.
func closing(fd uintptr, err error) error {
	if err == nil {
		unix.Close(int(fd))
	}
	return err
}

func bpfMap() error {
	attr := [32]uint32{2 /* array */, 4, 8, 1}
	fd, err := value(unix.SYS_BPF, 0 /* BPF_MAP_CREATE */, at(&attr), unsafe.Sizeof(attr))
	return closing(fd, err)
}

// bpfProgram loads "return 0" as a socket filter.
func bpfProgram() error {
	insns := [2]uint64{0xb7, 0x95} // r0 = 0; exit
	license := []byte("GPL\x00")
	attr := struct {
		kind, count    uint32
		insns, license uint64
		rest           [12]uint64
	}{1, 2, uint64(at(&insns)), uint64(at(&license[0])), [12]uint64{}}
	fd, err := value(unix.SYS_BPF, 5 /* BPF_PROG_LOAD */, at(&attr), unsafe.Sizeof(attr))
	return closing(fd, err)
}

func perfEvent() error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := value(unix.SYS_PERF_EVENT_OPEN, at(&attr), 0, all, all, 0)
	return closing(fd, err)
}

// openByHandle is the "shocker": a made-up handle of inode 2, which on most
// file systems is the root that the mount namespace hides.
func openByHandle() error {
	handle := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY)
	return closing(uintptr(fd), err)
}

func nameToHandle() error {
	_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
	return err
}

func syslogRead() error {
	var buf [256]byte
	return call(unix.SYS_SYSLOG, 3, at(&buf), uintptr(len(buf)))
}

func clockSettime() error {
	ts := unix.Timespec{Sec: 1, Nsec: -1} // EINVAL, after the permission check for those who may
	return call(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, at(&ts))
}

func adjtimex() error {
	tx := unix.Timex{Modes: unix.ADJ_TICK, Tick: 1} // a tick out of range: EINVAL for root
	return call(unix.SYS_ADJTIMEX, at(&tx))
}

func pidfdGetfd() error {
	pidfd, err := value(unix.SYS_PIDFD_OPEN, 1, 0)
	if err != nil {
		return call(unix.SYS_PIDFD_GETFD, all, 0, 0)
	}
	defer unix.Close(int(pidfd))
	fd, err := value(unix.SYS_PIDFD_GETFD, pidfd, 0, 0)
	return closing(fd, err)
}

// seccompListener asks for a user notification descriptor: a filter of the
// attacker's own with which it could answer other calls.
func seccompListener() error {
	prog := [1]unix.SockFilter{{Code: unix.BPF_RET, K: 0x7fff0000}}
	fprog := unix.SockFprog{Len: 1, Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fd, err := value(unix.SYS_SECCOMP, 1, 8, at(&fprog))
	return closing(fd, err)
}

// processVM reads (or writes) one byte at an unmapped address of pid: EFAULT
// says that the kernel allowed it and found nothing there.
func processVM(nr uintptr, pid int) error {
	var b byte
	local := unix.Iovec{Base: &b, Len: 1}
	remote := unix.RemoteIovec{Base: 1 << 12, Len: 1}
	return call(nr, uintptr(pid), at(&local), 1, at(&remote), 1, 0)
}
