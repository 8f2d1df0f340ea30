package adversary

import (
	"os"
	"strings"
)

// procRows are attempts at the kernel's own file systems (P1, P2, P4, P5).
func procRows() []row {
	read := func(id, what string, paths ...string) row {
		r := row{id: id, invariant: "H2", what: what, deny: hidden,
			inside: []string{"read /proc/self/status", "read /proc/meminfo"}}
		for _, p := range paths {
			r.attempts = append(r.attempts, "read "+p)
		}
		return r
	}
	list := func(id, what string, paths ...string) row {
		r := row{id: id, invariant: "H2", what: what, deny: hidden, inside: []string{"list /proc/self"}}
		for _, p := range paths {
			r.attempts = append(r.attempts, "list "+p)
		}
		return r
	}
	write := func(id, what string, paths ...string) row {
		r := row{id: id, invariant: "H2", what: what, deny: hidden, inside: []string{"open_write /proc/self/comm"},
			test: valuesUnchanged}
		for _, p := range paths {
			r.attempts = append(r.attempts, "open_write "+p)
		}
		return r
	}
	return []row{
		read("P1.memory", "read the kernel's memory and its maps", "/proc/kcore", "/proc/kpagecount", "/proc/kpageflags",
			"/proc/kpagecgroup",
			"/proc/vmallocinfo", "/proc/pagetypeinfo", "/proc/slabinfo"),
		read("P1.keys", "read other users' keys", "/proc/keys"),
		read("P1.timers", "read other processes' timers and the scheduler's state", "/proc/timer_list", "/proc/sched_debug",
			"/proc/latency_stats"),
		read("P1.counters", "hear from a neighbour by counters of the whole machine", "/proc/buddyinfo",
			"/proc/cgroups", "/proc/diskstats", "/proc/partitions", "/proc/vmstat", "/proc/pressure/cpu",
			"/proc/schedstat", "/proc/softirqs", "/proc/zoneinfo", "/proc/sys/fs/aio-nr",
			"/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr", "/proc/sys/fs/inode-state",
			"/proc/sys/kernel/pty/nr"),
		read("P1.kmsg", "read the kernel's log", "/proc/kmsg"),
		{id: "P1.kallsyms", invariant: "H2", what: "learn the kernel's addresses", test: kernelAddresses},
		list("P1.firmware", "look at firmware, ACPI and SCSI", "/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/firmware",
			"/sys/firmware/efi"),
		list("P1.sys", "look at the host's devices and debugging", "/sys/kernel/debug", "/sys/kernel/tracing",
			"/sys/kernel/security", "/sys/class/net/eth0",
			"/sys/devices/virtual/powercap", "/sys/fs/bpf", "/sys/fs/fuse/connections", "/sys/kernel/config"),
		write("P2.core_pattern", "have the host run a program on a crash", "/proc/sys/kernel/core_pattern",
			"/proc/sys/kernel/core_pipe_limit"),
		write("P2.modprobe", "have the host run a program for a module", "/proc/sys/kernel/modprobe",
			"/proc/sys/kernel/hotplug", "/sys/kernel/uevent_helper"),
		write("P2.sysctl", "change the host's settings", "/proc/sys/kernel/hostname", "/proc/sys/kernel/randomize_va_space",
			"/proc/sys/kernel/yama/ptrace_scope",
			"/proc/sys/kernel/dmesg_restrict", "/proc/sys/kernel/perf_event_paranoid", "/proc/sys/kernel/sysrq",
			"/proc/sys/kernel/panic",
			"/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/fs/file-max",
			"/proc/sys/fs/suid_dumpable",
			"/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward"),
		write("P2.sysrq", "crash or reboot the host", "/proc/sysrq-trigger"),
		write("P2.irq", "move interrupts", "/proc/irq/default_smp_affinity", "/proc/irq/0/smp_affinity"),
		write("P2.binfmt", "have the host interpret a binary format", "/proc/sys/fs/binfmt_misc/register",
			"/proc/sys/fs/binfmt_misc/status"),
		write("P2.bus", "write to a bus or a file system's control", "/proc/bus/pci/00/00.0", "/proc/fs/nfsd/filehandle",
			"/proc/mtrr", "/proc/driver/rtc",
			"/proc/asound/card0/oss_mixer", "/proc/acpi/wakeup"),
		{id: "P2.release_agent", invariant: "H1", what: "have the host run a program when a control group empties",
			test: releaseAgent},
		{id: "P2.cgroup_escape", invariant: "H4", what: "leave the control group, or raise its limits", test: cgroupEscape},
		{id: "P4.identity", invariant: "H1", what: "learn which machine this is", deny: hidden,
			inside: []string{"read /proc/version"},
			attempts: []string{"read /etc/machine-id", "read /var/lib/dbus/machine-id", "read /sys/class/dmi/id/product_uuid",
				"read /sys/class/dmi/id/product_serial",
				"read /sys/devices/virtual/dmi/id/product_name", "list /sys/class/net", "read /sys/class/net/eth0/address",
				"list /sys/bus/pci/devices"}},
		{id: "P4.cgroup_path", invariant: "H1",
			what: "learn another sandbox's name, or one's own place on the host, from /proc/1/cgroup", test: cgroupPath},
		{id: "P5.init_arguments", invariant: "C1", what: "learn anything from PID 1's arguments", test: initArguments},
	}
}

// kernelAddresses reads /proc/kallsyms, which shows zeroes to whoever may not know.
func kernelAddresses(c *trial) {
	r := c.box().try(c, "read /proc/kallsyms")
	if r.Outcome == "succeeded" && !strings.HasPrefix(r.Detail, "0000000000000000 ") {
		c.Errorf("HOLE: /proc/kallsyms begins with %.60q", r.Detail)
	}
	c.works(c.box(), "read /proc/version")
	if out := c.suite.outside(c, "read /proc/kallsyms"); strings.HasPrefix(out.Detail, "0000000000000000 ") && asRoot() {
		c.remark("this kernel hides addresses from root too")
	}
}

// valuesUnchanged is the oracle of P2: what the host's settings are.
func valuesUnchanged(c *trial) {
	for _, change := range c.suite.before.changed(readHostValues()) {
		c.Errorf("HOLE: %s", change)
	}
}

// releaseAgent tries every control group hierarchy the host has.
func releaseAgent(c *trial) {
	c.row.deny = hidden
	paths := []string{"/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/notify_on_release"}
	for _, at := range cgroupMounts() {
		paths = append(paths, at+"/release_agent", at+"/notify_on_release")
	}
	for _, p := range paths {
		c.denied(c.box(), "open_write "+p)
	}
	c.works(c.box(), "open_write /proc/self/comm")
	valuesUnchanged(c)
}

// cgroupEscape tries to write control group files, by the paths of inside and
// of the host. The oracle: the host still sees the process in its group.
func cgroupEscape(c *trial) {
	c.row.deny = hidden
	t := c.occupied(boxOptions{many: true})
	before := cgroups(t.user.pid)
	paths := []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max",
		"/sys/fs/cgroup/cgroup.subtree_control",
		"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/devices/devices.allow",
		"/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs"}
	for _, dir := range before {
		paths = append(paths, dir+"/cgroup.procs", dir+"/memory.max", dir+"/pids.max")
	}
	for _, p := range paths {
		c.denied(t.box, "open_write "+p)
	}
	after := cgroups(t.user.pid)
	if len(before) == 0 {
		c.Error("not tested: the sandbox is in no control group of its own")
	}
	for hierarchy, dir := range before {
		if after[hierarchy] != dir {
			c.Errorf("HOLE: the process moved from %s to %s", dir, after[hierarchy])
		}
		if ownCgroup(dir) {
			continue
		}
	}
}

// cgroupPath reads what a control group namespace should hide.
func cgroupPath(c *trial) {
	a, b := c.occupied(boxOptions{}), c.occupied(boxOptions{})
	for _, path := range []string{"/proc/1/cgroup", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/1/mountinfo",
		"/proc/self/mounts"} {
		r := a.try(c, "lines "+path)
		for _, line := range r.Lines {
			if strings.Contains(line, string(b.sandbox.ID())) {
				c.Errorf("HOLE: %s names another sandbox: %s", path, line)
			}
			if strings.Contains(line, string(a.sandbox.ID())) && !c.mayShow(line) {
				c.Errorf("HOLE: %s shows the sandbox's place on the host: %s", path, line)
			}
		}
	}
	if why := c.suite.caps.Missing["group_namespace"]; why != "" {
		c.remark("names of the control group: %s", why)
	} else {
		for _, line := range c.works(a.box, "lines /proc/self/cgroup").Lines {
			f := strings.SplitN(line, ":", 3)
			if len(f) == 3 && f[2] != "/" {
				c.Errorf("HOLE: /proc/self/cgroup shows %s, which is no root of a control group namespace", line)
			}
		}
	}
	host, _ := os.ReadFile("/proc/" + a.user.status["Pid"] + "/cgroup")
	if !strings.Contains(string(host), "/") {
		c.Error("not tested: the host sees no control groups of the sandbox")
	}
}

// initArguments reads the guest's command line, which anybody inside may.
func initArguments(c *trial) {
	c.Setenv("COVE_CANARY", canaryWord())
	b := c.fresh(boxOptions{})
	r := c.works(b, "pids")
	for _, line := range r.Lines {
		for _, word := range []string{os.Getenv("COVE_CANARY"), c.suite.state, string(b.sandbox.ID())} {
			if strings.Contains(line, word) {
				c.Errorf("HOLE: a process inside shows %q: %s", word, line)
			}
		}
	}
	if !strings.Contains(strings.Join(r.Lines, "\n"), "probe") {
		c.Errorf("not tested: the list of processes has not even the attacker in it: %v", r.Lines)
	}
	c.row.deny = hidden
	c.denied(b, "read /proc/1/environ")
}
