package seccomp

// all32 compares the whole 32-bit argument.
const all32 = ^uint32(0)

// Values of the kernel's user-space interface, named as there. They are the same on both architectures.
const (
	cloneNamespaces = 0x7e020000 // CLONE_NEWNS|NEWCGROUP|NEWUTS|NEWIPC|NEWUSER|NEWPID|NEWNET

	afUnix    = 1
	afInet    = 2
	afInet6   = 10
	afNetlink = 16

	sockStream    = 1
	sockDgram     = 2
	sockRaw       = 3
	sockSeqpacket = 5
	sockFlags     = 0o2000000 | 0o4000 // SOCK_CLOEXEC|SOCK_NONBLOCK

	ipprotoTCP = 6
	ipprotoUDP = 17

	netlinkRoute = 0

	oCreate  = 0o100      // O_CREAT
	oTmpfile = 0o20000000 // __O_TMPFILE

	sSetID  = 0o6000 // S_ISUID|S_ISGID
	sIFMT   = 0o170000
	sIFREG  = 0o100000
	sIFIFO  = 0o010000
	sIFSOCK = 0o140000

	tiocsti   = 0x5412
	tioclinux = 0x541c
	tiocsetd  = 0x5423

	schedOther       = 0
	schedBatch       = 3
	schedIdle        = 5
	schedResetOnFork = 0x40000000

	rlimitCore = 4

	seccompSetModeStrict  = 0
	seccompSetModeFilter  = 1
	seccompGetActionAvail = 2
	seccompHarmlessFlags  = 1 | 2 | 16 // TSYNC, LOG, TSYNC_ESRCH
)

// whyCore: the guest sets RLIMIT_CORE to 1, the one value with which the kernel starts no crash handler
// (fs/coredump.c); 0 applies to files only. Programs that switch core dumps off insist on success, so their call
// reports success.
const whyCore = "every limit but that of core dumps: one other than 1 has the host's crash handler run, outside, as " +
	"root, on what the sandbox made"

// conditional returns the calls that are harmless only with some arguments.
func conditional() []Rule {
	socketType := all32 &^ sockFlags
	fileType := []uint32{0, sIFREG, sIFIFO, sIFSOCK}
	return append(modes(), []Rule{
		{
			Call:  "clone",
			Why:   "threads and processes, not namespaces",
			AnyOf: []Match{{{Arg: 0, Mask: cloneNamespaces, In: []uint32{0}}}},
		},
		{
			Call: "socket",
			Why: "TCP, UDP and Unix sockets, and the netlink family that lists addresses; not AF_VSOCK, AF_ALG, AF_PACKET, " +
				"AF_XDP, AF_KEY, raw sockets, or the protocols that load a module when first asked for (SCTP, DCCP, L2TP, " +
				"MPTCP, SMC)",
			AnyOf: []Match{
				{{Arg: 0, Mask: all32, In: []uint32{afUnix}}, {Arg: 1, Mask: socketType,
					In: []uint32{sockStream, sockDgram, sockSeqpacket}}},
				{{Arg: 0, Mask: all32, In: []uint32{afInet, afInet6}}, {Arg: 1, Mask: socketType, In: []uint32{sockStream}},
					{Arg: 2, Mask: all32, In: []uint32{0, ipprotoTCP}}},
				{{Arg: 0, Mask: all32, In: []uint32{afInet, afInet6}}, {Arg: 1, Mask: socketType, In: []uint32{sockDgram}},
					{Arg: 2, Mask: all32, In: []uint32{0, ipprotoUDP}}},
				// Netlink has no types; libraries ask for raw ones.
				{{Arg: 0, Mask: all32, In: []uint32{afNetlink}}, {Arg: 1, Mask: socketType, In: []uint32{sockDgram, sockRaw}},
					{Arg: 2, Mask: all32, In: []uint32{netlinkRoute}}},
			},
		},
		{
			Call: "socketpair",
			Why:  "pairs exist for Unix sockets",
			AnyOf: []Match{{{Arg: 0, Mask: all32, In: []uint32{afUnix}},
				{Arg: 1, Mask: socketType, In: []uint32{sockStream, sockDgram, sockSeqpacket}}}},
		},
		{
			Call: "ioctl",
			Why: "everything but typing into the terminal that started the sandbox (TIOCSTI, TIOCLINUX) and " +
				"loading line disciplines (TIOCSETD)",
			AnyOf: []Match{{{Arg: 1, Mask: all32, In: []uint32{tiocsti, tioclinux, tiocsetd}, Not: true}}},
		},
		{
			Call:  "prctl",
			Why:   "a process's own name, death signal, limits and hardening; not its memory map, tracer or page merging",
			AnyOf: []Match{{{Arg: 0, Mask: all32, In: prctlOptions()}}},
		},
		{
			Call: "personality",
			Why: "asking (0xffffffff), Linux and its 32-bit face; not READ_IMPLIES_EXEC or ADDR_NO_RANDOMIZE, which undo " +
				"defences",
			AnyOf: []Match{{{Arg: 0, Mask: all32, In: []uint32{
				0, 0x0008, // PER_LINUX, PER_LINUX32
				0x20000, 0x20008, // with UNAME26
				0xffffffff,
			}}}},
		},
		{
			Call:  "mknod",
			Why:   "files, pipes and sockets, not devices, and none setuid",
			AnyOf: []Match{{{Arg: 1, Mask: sIFMT | sSetID, In: fileType}}},
		},
		{
			Call:  "mknodat",
			Why:   "files, pipes and sockets, not devices, and none setuid",
			AnyOf: []Match{{{Arg: 2, Mask: sIFMT | sSetID, In: fileType}}},
		},
		{
			Call:  "sched_setscheduler",
			Why:   "the shares of a fair scheduler, not real time",
			AnyOf: []Match{{{Arg: 1, Mask: all32 &^ schedResetOnFork, In: []uint32{schedOther, schedBatch, schedIdle}}}},
		},
		{
			Call:    "setrlimit",
			Why:     whyCore,
			AnyOf:   []Match{{{Arg: 0, Mask: all32, In: []uint32{rlimitCore}, Not: true}}},
			Ignored: []Match{{{Arg: 0, Mask: all32, In: []uint32{rlimitCore}}}},
		},
		{
			Call: "prlimit64",
			Why:  whyCore,
			AnyOf: []Match{
				{{Arg: 1, Mask: all32, In: []uint32{rlimitCore}, Not: true}},
				{{Arg: 1, Mask: all32, In: []uint32{rlimitCore}}, {Arg: 2, Pointer: true}}, // asks only
			},
			Ignored: []Match{{{Arg: 1, Mask: all32, In: []uint32{rlimitCore}}, {Arg: 2, Pointer: true, Not: true}}},
		},
		{
			Call: "seccomp",
			Why: "a stricter filter that a browser or an agent puts on itself; without user notification (a second party to " +
				"answer calls) and without SPEC_ALLOW (turns a CPU mitigation off)",
			AnyOf: []Match{
				{{Arg: 0, Mask: all32, In: []uint32{seccompSetModeStrict, seccompGetActionAvail}}},
				{{Arg: 0, Mask: all32, In: []uint32{seccompSetModeFilter}},
					{Arg: 1, Mask: all32 &^ seccompHarmlessFlags, In: []uint32{0}}},
			},
		},
	}...)
}

// modes are the calls that set a file's mode. A setuid file has no effect inside, where mounts are nosuid. In a mounted
// directory of the host it would run as the host's user for every account there. mkdir is not listed: the kernel strips
// these bits from its mode.
func modes() []Rule {
	const why = "modes without setuid and setgid, which would work on the host for a file in a mounted directory"
	plain := func(arg int) Match { return Match{{Arg: arg, Mask: sSetID, In: []uint32{0}}} }
	makesNothing := func(arg int) Match { return Match{{Arg: arg, Mask: oCreate | oTmpfile, In: []uint32{0}}} }
	return []Rule{
		{Call: "chmod", Why: why, AnyOf: []Match{plain(1)}},
		{Call: "fchmod", Why: why, AnyOf: []Match{plain(1)}},
		{Call: "fchmodat", Why: why, AnyOf: []Match{plain(2)}},
		{Call: "fchmodat2", Why: why, AnyOf: []Match{plain(2)}},
		{Call: "creat", Why: why, AnyOf: []Match{plain(1)}},
		// Without O_CREAT the mode argument is an arbitrary register value.
		{Call: "open", Why: why, AnyOf: []Match{makesNothing(1), plain(2)}},
		{Call: "openat", Why: why, AnyOf: []Match{makesNothing(2), plain(3)}},
	}
}

// prctlOptions returns the options that a process may use: all affect the process alone, and none grants a privilege.
func prctlOptions() []uint32 {
	return []uint32{
		1, 2, // PDEATHSIG
		3, 4, // DUMPABLE
		5, 6, // UNALIGN
		7, 8, // KEEPCAPS
		13, 14, // TIMING
		15, 16, // NAME
		21, 22, // SECCOMP, as seccomp(2) without flags
		23, 24, // CAPBSET_READ, CAPBSET_DROP
		25, 26, // TSC
		27, 28, // SECUREBITS; setting needs a capability
		29, 30, // TIMERSLACK
		36, 37, // CHILD_SUBREAPER
		38, 39, // NO_NEW_PRIVS
		40,     // GET_TID_ADDRESS
		41, 42, // THP_DISABLE
		47,     // CAP_AMBIENT
		50, 51, // SVE_VL
		52,             // GET_SPECULATION_CTRL
		54, 55, 56, 60, // arm64: PAC_RESET_KEYS, TAGGED_ADDR_CTRL, PAC_SET_ENABLED_KEYS
		61,     // arm64: PAC_GET_ENABLED_KEYS
		63, 64, // SME_VL
		65, 66, // MDWE: memory deny write execute
		74, 75, 76, // arm64: SHADOW_STACK_STATUS
		0x41555856, // GET_AUXV
		0x53564d41, // SET_VMA: names for anonymous memory
	}
}
