package adversary

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// kernelRows are system calls that reach parts of the kernel which a sandbox has no business with (K1, K3).
func kernelRows() []row {
	one := func(id, what string, attempts ...string) row {
		return row{id: id, invariant: "H3", what: what, attempts: attempts, inside: []string{"getpid"}}
	}
	return []row{
		one("K1.io_uring_setup", "make calls past the filter through a ring", "io_uring_setup"),
		one("K1.io_uring_enter", "enter a ring", "io_uring_enter"),
		one("K1.io_uring_register", "register resources with a ring", "io_uring_register"),
		one("K3.bpf", "load a program or make a map in the kernel", "bpf_map_create", "bpf_prog_load"),
		one("K3.perf_event_open", "measure the machine", "perf_event_open"),
		one("K3.userfaultfd", "stop the kernel in a copy", "userfaultfd", "userfaultfd_user"),
		one("K3.kexec", "replace the kernel", "kexec_load", "kexec_file_load"),
		one("K3.modules", "load or unload a module", "init_module", "finit_module", "delete_module"),
		one("K3.keyrings", "use keyrings, which know no namespaces", "keyctl", "add_key", "request_key"),
		one("K3.ptrace", "trace PID 1, or a child of one's own", "ptrace_init", "ptrace_child"),
		one("K3.process_vm", "read or write the memory of PID 1 or of a child", "process_vm_readv", "process_vm_writev",
			"process_vm_child"),
		one("K3.pidfd_getfd", "take a descriptor of PID 1's", "pidfd_getfd"),
		one("K3.kcmp", "compare PID 1's resources with one's own", "kcmp"),
		one("K3.handles", "open inodes by number (shocker)", "open_by_handle_at", "name_to_handle_at"),
		one("K3.fanotify", "watch whole file systems", "fanotify_init"),
		one("K3.quotactl", "change quotas", "quotactl", "quotactl_fd"),
		one("K3.acct", "turn process accounting on", "acct"),
		one("K3.syslog", "read the kernel's log", "syslog", "syslog_read"),
		one("K3.swap", "change the host's swap", "swapon", "swapoff"),
		one("K3.reboot", "reboot the host", "reboot"),
		one("K3.clocks", "set the host's clocks", "settimeofday", "clock_settime", "adjtimex"),
		one("K3.numa", "place or find pages", "migrate_pages", "move_pages"),
		one("K3.process_madvise", "advise another process's memory", "process_madvise"),
		one("K3.memfd_secret", "map memory the kernel cannot see", "memfd_secret"),
		one("K3.memfd_create", "run a program that was never a file", "memfd_create", "exec_memfd"),
		{id: "K3.seccomp_listener", invariant: "H3", what: "answer other processes' calls by a filter of one's own",
			attempts: []string{"seccomp_listener"}, deny: append([]string{"EINVAL"}, denied...), inside: []string{"getpid"}},
		{id: "K3.personality", invariant: "H3", what: "undo address randomisation and no-execute",
			attempts: []string{"personality_exec", "personality_noaslr"}, inside: []string{"personality_default"}},
		one("K3.obsolete", "call what no program has used for decades", "lookup_dcookie", "nfsservctl"),
		{id: "K3.x86_ports", invariant: "H3", what: "port access and segment tables",
			attempts: x86("iopl", "ioperm", "modify_ldt", "modify_ldt_write"), inside: []string{"getpid"}},
		{id: "K3.x86_obsolete", invariant: "H3", what: "x86's obsolete calls",
			attempts: x86("uselib", "sysfs", "ustat", "_sysctl", "create_module"), inside: []string{"getpid"}},
		{id: "K3.x32", invariant: "H3", what: "the x32 table, past a filter that knows one table",
			attempts: []string{"x32_getpid", "x32_ptrace", "x32_unshare"}, inside: []string{"getpid"}},
		{id: "K3.int80", invariant: "H3", what: "the 32-bit table, past a filter that knows one table",
			attempts: []string{"int80_getpid", "int80_mount", "int80_ptrace", "int80_unshare", "int80_keyctl",
				"int80_bpf", "int80_perf",
				"int80_io_uring", "int80_persona", "int80_clone"}, inside: []string{"getpid"}},
		{id: "K3.sweep_native", invariant: "H3", what: "every number there is: none of the dangerous calls is reached",
			test: sweepNative},
		{id: "K3.sweep_x32", invariant: "H3", what: "every x32 number is refused", test: sweepForeign("x32")},
		{id: "K3.sweep_int80", invariant: "H3", what: "every 32-bit number is refused", test: sweepForeign("int80")},
		{id: "K8.posture", invariant: "H3", what: "keep a capability, a filter gap or an id of the host's", test: posture},
		{id: "K8.threads", invariant: "H3", what: "find a thread that is less confined", test: threadsAlike},
		{id: "K8.taint", invariant: "H1", what: "taint the kernel", test: untainted},
	}
}

// x86 leaves attempts out that only that architecture has.
func x86(attempts ...string) []string {
	if foreign("int80") {
		return nil
	}
	return attempts
}

// reached lists the numbers of a sweep that got past the filter, with their answer.
func reached(r outcome.Result) map[string]string {
	got := map[string]string{}
	for _, line := range r.Lines {
		nr, answer, _ := strings.Cut(line, " ")
		if !slices.Contains([]string{"EPERM", "ENOSYS", "SIGSYS"}, answer) {
			got[nr] = answer
		}
	}
	return got
}

// sweepNative asks for every number with arguments that no call can use. The
// control: what a program lives on is reached.
func sweepNative(c *trial) {
	sweep(c, neverCalls())
}

// sweep asks for every number, of which those of never must not be reached.
func sweep(c *trial, never map[string]int) {
	r := c.fresh(boxOptions{}).try(c, "sweep native 0 520")
	if r.Outcome != outcome.Succeeded {
		c.Fatalf("not tested: %s", say(r))
	}
	got := reached(r)
	for name, nr := range neededCalls() {
		if got[fmt.Sprint(nr)] == "" {
			c.Errorf("not tested: %s (%d) is not reached, and every program needs it", name, nr)
		}
	}
	for name, nr := range never {
		if answer := got[fmt.Sprint(nr)]; answer != "" {
			c.Errorf("HOLE: %s (%d) is reached: %s", name, nr, answer)
		}
	}
	c.remark("%d numbers asked, %d reached", r.Count, len(got))
}

// sweepForeign asks for every number of another table.
func sweepForeign(abi string) func(*trial) {
	return func(c *trial) {
		if foreign(abi) {
			c.lacking("x86 only")
		}
		r := c.fresh(boxOptions{}).try(c, "sweep "+abi+" 0 512")
		if r.Outcome != outcome.Succeeded || r.Count < 512 {
			c.Fatalf("not tested: %s, %d answers", say(r), r.Count)
		}
		for nr, answer := range reached(r) {
			c.Errorf("HOLE: %s number %s is reached: %s", abi, nr, answer)
		}
		control := c.suite.outside(c, abi+"_getpid")
		if control.Outcome != outcome.Succeeded {
			c.remark("this kernel has no such table: %s outside", say(control))
		}
		c.remark("%d numbers asked", r.Count)
	}
}

// posture reads the capabilities, filters and ids of the user's process and of PID 1 from the host. The control is the
// suite's own process, of which the same reading says something else.
func posture(c *trial) {
	for _, user := range []string{"code", "agent"} {
		t := c.occupied(boxOptions{user: userOf(user)})
		c.postureOf(t, t.user, user)
		c.guestPosture(t)
	}
	own, _ := readProcess(syscall.Getpid())
	if own.status["Seccomp"] == "2" && own.status["NoNewPrivs"] == "1" && zeroCapabilities(own.status) == nil {
		c.Error("not tested: the suite itself is as confined as a sandbox, so the reading shows nothing")
	}
}

// postureOf checks every thread of a process of the user's.
func (c *trial) postureOf(t *tenant, p hostProcess, user string) {
	c.Helper()
	for _, status := range threadStatuses(p.pid) {
		for _, wrong := range zeroCapabilities(status) {
			c.Errorf("HOLE: %s of the %s user is %s", wrong, user, status[wrong])
		}
		if status["NoNewPrivs"] != "1" {
			c.Errorf("HOLE: NoNewPrivs of the %s user is %q", user, status["NoNewPrivs"])
		}
		if status["Seccomp"] != "2" || status["Seccomp_filters"] == "0" {
			c.Errorf("HOLE: Seccomp of the %s user is %q with %q filters", user, status["Seccomp"], status["Seccomp_filters"])
		}
		if asRoot() {
			c.hostIDs(status["Uid"], user)
			c.hostIDs(status["Gid"], user)
			if g := status["Groups"]; g != "" {
				c.hostIDs(g, user)
			}
		}
	}
}

// hostIDs checks that an id is none that anybody on the host has.
func (c *trial) hostIDs(ids, user string) {
	c.Helper()
	for _, id := range strings.Fields(ids) {
		var n int
		fmt.Sscan(id, &n)
		if n == 0 {
			c.Errorf("HOLE: the %s user is root on the host", user)
		}
		if c.suite.caps.HostIDRange && n < 1<<16 {
			c.Errorf("HOLE: the %s user is id %d on the host, which is not of the sandbox's own range", user, n)
		}
	}
}

// guestPosture checks PID 1: it starts processes as somebody else, so it may
// keep the few capabilities for that, inside its user namespace, and no more.
func (c *trial) guestPosture(t *tenant) {
	c.Helper()
	const mayKeep = 1<<5 | 1<<6 | 1<<7 // CAP_KILL, CAP_SETGID, CAP_SETUID
	for _, status := range threadStatuses(t.guest.pid) {
		sets := []string{"CapInh", "CapPrm", "CapEff", "CapAmb"}
		if status["Pid"] == status["Tgid"] {
			sets = append(sets, "CapBnd") // which matters where processes are started: on the main thread
		}
		for _, set := range sets {
			var caps uint64
			fmt.Sscanf(status[set], "%x", &caps)
			if extra := caps &^ mayKeep; extra != 0 {
				c.Errorf("HOLE: PID 1 keeps %s %#x, of which %#x is more than starting processes takes", set, caps, extra)
			}
		}
		if status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
			c.Errorf("HOLE: PID 1 has NoNewPrivs %q, Seccomp %q", status["NoNewPrivs"], status["Seccomp"])
		}
		if asRoot() && c.suite.caps.HostIDRange {
			c.hostIDs(status["Uid"], "PID 1")
		}
	}
}

func zeroCapabilities(status map[string]string) []string {
	var wrong []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" {
			wrong = append(wrong, set)
		}
	}
	return wrong
}

// threadsAlike asks the process itself, with many threads.
func threadsAlike(c *trial) {
	r := c.works(c.box(), "threads")
	if len(r.Lines) > 0 {
		c.Errorf("HOLE: threads differ from %s: %s", r.Detail, strings.Join(r.Lines, "; "))
	}
	if r.Count < 2 {
		c.Errorf("not tested: there was one thread only")
	}
	sealed := c.suite.options.Root || strings.Contains(r.Detail, "NoNewPrivs: 1")
	if !sealed || !strings.Contains(r.Detail, "Seccomp: 2") {
		c.Errorf("HOLE: %s", r.Detail)
	}
}

// untainted compares the taint of the kernel with that before the first row.
func untainted(c *trial) {
	now := readHostValues()
	const taint = "/proc/sys/kernel/tainted"
	if now[taint] == "" {
		c.lacking("%s cannot be read", taint)
	}
	if was := c.suite.before[taint]; now[taint] != was {
		c.Errorf("HOLE: %s was %q and is %q", taint, was, now[taint])
	}
}
