//go:build linux

package seccomp

import "golang.org/x/sys/unix"

// all32 compares the whole 32-bit argument.
const all32 = ^uint32(0)

// Values that x/sys lacks, or that differ from the kernel's own word for them.
const (
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
		unix.CLONE_NEWPID | unix.CLONE_NEWNET
	together   = unix.CLONE_FILES | unix.CLONE_THREAD
	socketType = all32 &^ (unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
	setID      = unix.S_ISUID | unix.S_ISGID
	makesFile  = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY // __O_TMPFILE
	tioclinux  = 0x541c

	addrNoRandomize = 0x0040000 // of personality(2)
	tsyncOrLogged   = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
)

// is tests a whole argument, in 32 bits, masked only the bits under a mask.
func is(arg int, values ...uint32) Test { return masked(arg, all32, values...) }

func masked(arg int, mask uint32, values ...uint32) Test {
	return Test{Arg: arg, Mask: mask, In: values}
}

func isNot(arg int, values ...uint32) Test { return Test{Arg: arg, Mask: all32, In: values, Not: true} }

// whyCore: the guest sets RLIMIT_CORE to 1, the one value with which the kernel starts no crash handler
// (fs/coredump.c); 0 applies to files only. Programs that switch core dumps off insist on success, so their call
// reports success.
const whyCore = "every limit but that of core dumps: one other than 1 has the host's crash handler run, outside, as " +
	"root, on what the sandbox made"

func conditional() []Rule {
	const ordinaryFile = "files, pipes and sockets, not devices, and none setuid"
	unixSocket := Match{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET)}
	return append(modes(), []Rule{
		{Call: "clone",
			Why: "threads and processes, not namespaces; and no process that shares another's descriptors, whose locks of " +
				"files the kernel would list without a process after its end",
			AnyOf: []Match{{masked(0, namespaces|unix.CLONE_FILES, 0)}, {masked(0, namespaces|together, together)}}},
		{Call: "fcntl",
			Why: "descriptors, their flags and signals, locks of a process, pipes and seals; not leases and notifications, " +
				"which hold up or watch others who open a file, also through a read-only mount, nor hints that stay with it " +
				"there; nor locks of an open file (OFD), which the kernel lists without a process; programs do without each",
			AnyOf: []Match{{is(1, fcntlCommands()...)}}},
		{Call: "socket",
			Why: "TCP, UDP and Unix sockets, and the netlink family that lists addresses; not AF_VSOCK, AF_ALG, AF_PACKET, " +
				"AF_XDP, AF_KEY, raw sockets, or the protocols that load a module when first asked for (SCTP, DCCP, L2TP, " +
				"MPTCP, SMC)",
			AnyOf: []Match{
				unixSocket,
				{is(0, unix.AF_INET, unix.AF_INET6), masked(1, socketType, unix.SOCK_STREAM), is(2, 0, unix.IPPROTO_TCP)},
				{is(0, unix.AF_INET, unix.AF_INET6), masked(1, socketType, unix.SOCK_DGRAM), is(2, 0, unix.IPPROTO_UDP)},
				// Netlink has no types; libraries ask for raw ones.
				{is(0, unix.AF_NETLINK), masked(1, socketType, unix.SOCK_DGRAM, unix.SOCK_RAW), is(2, unix.NETLINK_ROUTE)},
			}},
		{Call: "socketpair", Why: "pairs exist for Unix sockets", AnyOf: []Match{unixSocket}},
		{Call: "ioctl",
			Why: "everything but typing into the terminal that started the sandbox (TIOCSTI, TIOCLINUX) and " +
				"loading line disciplines (TIOCSETD)",
			AnyOf: []Match{{isNot(1, unix.TIOCSTI, tioclinux, unix.TIOCSETD)}}},
		{Call: "prctl",
			Why:   "a process's own name, death signal, limits and hardening; not its memory map, tracer or page merging",
			AnyOf: []Match{{is(0, prctlOptions()...)}}},
		{Call: "personality",
			Why: "asking (0xffffffff), Linux and its 32-bit face; not READ_IMPLIES_EXEC or ADDR_NO_RANDOMIZE, which undo " +
				"defences",
			// PER_LINUX and PER_LINUX32, alone and with UNAME26
			AnyOf: []Match{{is(0, 0, 0x0008, 0x20000, 0x20008, 0xffffffff)}}},
		{Call: "mknod", Why: ordinaryFile, AnyOf: []Match{nodes(1, unix.S_IFMT|setID)}},
		{Call: "mknodat", Why: ordinaryFile, AnyOf: []Match{nodes(2, unix.S_IFMT|setID)}},
		{Call: "sched_setscheduler",
			Why:   "the shares of a fair scheduler, not real time",
			AnyOf: []Match{{masked(1, all32&^unix.SCHED_RESET_ON_FORK, unix.SCHED_NORMAL, unix.SCHED_BATCH, unix.SCHED_IDLE)}}},
		{Call: "setrlimit", Why: whyCore,
			AnyOf:   []Match{{isNot(0, unix.RLIMIT_CORE)}},
			Ignored: []Match{{is(0, unix.RLIMIT_CORE)}}},
		{Call: "prlimit64", Why: whyCore,
			AnyOf:   []Match{{isNot(1, unix.RLIMIT_CORE)}, {is(1, unix.RLIMIT_CORE), {Arg: 2, Pointer: true}}}, // asks only
			Ignored: []Match{{is(1, unix.RLIMIT_CORE), {Arg: 2, Pointer: true, Not: true}}}},
	}...)
}

// nodes matches a mode of a file, a pipe or a socket under a mask.
func nodes(arg int, mask uint32) Match {
	return Match{masked(arg, mask, 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK)}
}

// fcntlCommands returns the commands that act on the process's own descriptors, or on a file only as its mode allows.
func fcntlCommands() []uint32 {
	return []uint32{
		unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW,
		unix.F_SETOWN, unix.F_GETOWN, unix.F_SETSIG, unix.F_GETSIG, unix.F_SETOWN_EX, unix.F_GETOWN_EX,
		1027, 1028, // DUPFD_QUERY, CREATED_QUERY: whether it is the same, or new
		unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ, unix.F_GETPIPE_SZ, unix.F_ADD_SEALS, unix.F_GET_SEALS,
	}
}

// ownFilter lets a program add a filter of its own to what it already has.
func ownFilter() Rule {
	return Rule{Call: "seccomp",
		Why: "a stricter filter that a browser or an agent puts on itself; without user notification (a second party to " +
			"answer calls) and without SPEC_ALLOW (turns a CPU mitigation off)",
		AnyOf: []Match{
			{is(0, unix.SECCOMP_SET_MODE_STRICT, unix.SECCOMP_GET_ACTION_AVAIL)},
			{is(0, unix.SECCOMP_SET_MODE_FILTER), masked(1, all32&^tsyncOrLogged, 0)},
		}}
}

// modes are the calls that set a file's mode. A setuid file has no effect inside, where mounts are nosuid. In a mounted
// directory of the host it would run as the host's user for every account there. mkdir is not listed: the kernel strips
// these bits from its mode.
func modes() []Rule {
	const why = "modes without setuid and setgid, which would work on the host for a file in a mounted directory"
	plain := func(call string, arg int) Rule {
		return Rule{Call: call, Why: why, AnyOf: []Match{{masked(arg, setID, 0)}}}
	}
	// Without O_CREAT the mode argument is an arbitrary register value.
	opens := func(call string, flags, mode int) Rule {
		return Rule{Call: call, Why: why, AnyOf: []Match{{masked(flags, makesFile, 0)}, {masked(mode, setID, 0)}}}
	}
	return []Rule{plain("chmod", 1), plain("fchmod", 1), plain("fchmodat", 2), plain("fchmodat2", 2), plain("creat", 1),
		opens("open", 1, 2), opens("openat", 2, 3)}
}

// prctlOptions returns the options that a process may use: all affect the process alone, and none grants a privilege.
func prctlOptions() []uint32 {
	return []uint32{
		1, 2, 3, 4, 5, 6, 7, 8, // PDEATHSIG, DUMPABLE, UNALIGN, KEEPCAPS
		13, 14, 15, 16, // TIMING, NAME
		21, 22, // SECCOMP, as seccomp(2) without flags
		23, 24, 25, 26, // CAPBSET_READ, CAPBSET_DROP, TSC
		27, 28, // SECUREBITS; setting needs a capability
		29, 30, 36, 37, 38, 39, 40, // TIMERSLACK, CHILD_SUBREAPER, NO_NEW_PRIVS, GET_TID_ADDRESS
		41, 42, 47, // THP_DISABLE, CAP_AMBIENT
		50, 51, 52, // SVE_VL, GET_SPECULATION_CTRL
		54, 55, 56, 60, 61, // arm64: PAC_RESET_KEYS, TAGGED_ADDR_CTRL, PAC_SET_ENABLED_KEYS, PAC_GET_ENABLED_KEYS
		63, 64, 65, 66, // SME_VL; MDWE: memory deny write execute
		74, 75, 76, // arm64: SHADOW_STACK_STATUS
		0x41555856, 0x53564d41, // GET_AUXV; SET_VMA: names for anonymous memory
	}
}
