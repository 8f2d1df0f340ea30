package adversary

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hostValues are settings of the host that every sandbox would like to change.
type hostValues map[string]string

// watched are the host's values that are compared before and after.
var watched = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
	"/proc/sys/kernel/domainname",
	"/proc/sys/kernel/hotplug", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/randomize_va_space",
	"/proc/sys/kernel/kptr_restrict",
	"/proc/sys/kernel/dmesg_restrict", "/proc/sys/kernel/perf_event_paranoid",
	"/proc/sys/kernel/unprivileged_bpf_disabled",
	"/proc/sys/kernel/tainted", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
	"/proc/sys/vm/overcommit_memory",
	"/proc/sys/vm/swappiness", "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max", "/proc/sys/fs/suid_dumpable",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/sys/kernel/uevent_helper",
	"/etc/passwd", "/etc/shadow",
	"/etc/hosts", "/etc/resolv.conf",
}

// readHostValues reads them all; those that are not there stay empty.
func readHostValues() hostValues {
	v := hostValues{}
	for _, path := range watched {
		if b, err := os.ReadFile(path); err == nil {
			v[path] = string(b)
		}
	}
	agents, _ := filepath.Glob("/sys/fs/cgroup/*/release_agent")
	for _, path := range agents {
		b, _ := os.ReadFile(path)
		v[path] = string(b)
	}
	return v
}

// changed lists what differs.
func (v hostValues) changed(now hostValues) []string {
	var all []string
	for path, was := range v {
		if now[path] != was {
			all = append(all, fmt.Sprintf("%s was %.60q and is %.60q", path, was, now[path]))
		}
	}
	slices.Sort(all)
	return all
}

// hostProcess is a process as the host sees it.
type hostProcess struct {
	pid    int
	status map[string]string
}

// readProcess reads /proc/PID/status; ok is false when it has gone.
func readProcess(pid int) (p hostProcess, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, false
	}
	return hostProcess{pid, parseStatus(b)}, true
}

func parseStatus(b []byte) map[string]string {
	status := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, rest, _ := strings.Cut(lines.Text(), ":")
		status[key] = strings.Join(strings.Fields(rest), " ")
	}
	return status
}

func (p hostProcess) parent() (hostProcess, bool) {
	n, err := strconv.Atoi(p.status["PPid"])
	if err != nil || n <= 0 {
		return p, false
	}
	return readProcess(n)
}

// pidInside is the process's id in its own pid namespace.
func (p hostProcess) pidInside() string {
	f := strings.Fields(p.status["NSpid"])
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

// namespace is the inode of one of the process's namespaces: "net:[4026]".
func (p hostProcess) namespace(kind string) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind))
	return link
}

// marked lists the host's processes whose command line holds a word.
func marked(word string) []int {
	if word == "" {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !bytes.Contains(cmdline, []byte(word)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// tenant is a sandbox with a process that waits in it, seen from the host.
type tenant struct {
	*box
	word  string
	user  hostProcess // the process that waits
	guest hostProcess // PID 1 of the sandbox
	held  *process
}

// occupied makes a fresh sandbox in which a process waits, and finds both on the host.
func (c *trial) occupied(o boxOptions) *tenant {
	c.Helper()
	return c.occupy(c.fresh(o))
}

// occupy starts a process that waits in a sandbox and finds it on the host.
func (c *trial) occupy(b *box) *tenant {
	c.Helper()
	t := &tenant{box: b, word: token()}
	t.held = b.start(c, spec("hold "+t.word))
	if t.held == nil || !t.held.said("holding") {
		c.Fatalf("not tested: no process waits in the sandbox")
	}
	pids := marked(t.word)
	if len(pids) != 1 {
		c.lacking("this host sees %d processes of the sandbox: its engine is on another machine", len(pids))
	}
	var ok bool
	if t.user, ok = readProcess(pids[0]); !ok {
		c.Fatal("not tested: the process has gone")
	}
	t.guest = t.user
	for t.guest.pidInside() != "1" {
		if t.guest, ok = t.guest.parent(); !ok {
			c.Fatal("not tested: PID 1 of the sandbox was not found")
		}
	}
	return t
}

// cgroups are the control groups of a process: hierarchy to directory.
func cgroups(pid int) map[string]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	mounts := cgroupMounts()
	dirs := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		if at := mounts[f[1]]; at != "" {
			dirs[f[1]] = filepath.Join(at, f[2])
		}
	}
	return dirs
}

// cgroupMounts maps a v1 controller list (or "" for version 2) to where its hierarchy is mounted.
func cgroupMounts() map[string]string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	at := map[string]string{}
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			at[""] = left[4]
		case "cgroup":
			for _, option := range strings.Split(right[2], ",") {
				at[option] = left[4]
			}
			at[strings.TrimPrefix(right[2], "rw,")] = left[4]
		}
	}
	return at
}

// traces is what a sandbox is on the host: everything that must be gone when it is.
type traces struct {
	word       string
	pids       []int
	namespaces []string
	cgroups    []string
	id         string
	taken      time.Duration // since the machine started
}

func (t *tenant) traces() traces {
	tr := traces{word: t.word, id: string(t.sandbox.ID()), taken: sinceBoot()}
	for _, p := range []hostProcess{t.user, t.guest} {
		tr.pids = append(tr.pids, p.pid)
		for _, kind := range namespaceKinds {
			// What the guest was started in, it shares: all containers of a Podman without root are in its user namespace.
			around, _ := os.Readlink("/proc/" + t.guest.status["PPid"] + "/ns/" + kind)
			if ns := p.namespace(kind); ns != "" && ns != ownNamespace(kind) && ns != around &&
				!slices.Contains(tr.namespaces, ns) {
				tr.namespaces = append(tr.namespaces, ns)
			}
		}
		for _, dir := range cgroups(p.pid) {
			if !slices.Contains(tr.cgroups, dir) && !ownCgroup(dir) {
				tr.cgroups = append(tr.cgroups, dir)
			}
		}
	}
	return tr
}

var namespaceKinds = []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"}

func ownNamespace(kind string) string {
	link, _ := os.Readlink("/proc/self/ns/" + kind)
	return link
}

// ownCgroup reports a control group that holds the test itself, or its ancestors.
func ownCgroup(dir string) bool {
	for _, own := range cgroups(os.Getpid()) {
		if own == dir || strings.HasPrefix(own, dir+"/") {
			return true
		}
	}
	return false
}

// left lists what of a sandbox is still there.
func (tr traces) left(places ...string) []string {
	var left []string
	for _, pid := range marked(tr.word) {
		left = append(left, fmt.Sprintf("process %d", pid))
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		left = append(left, tr.heldBy(process)...)
	}
	for _, dir := range tr.cgroups {
		if _, err := os.Stat(dir); err == nil {
			left = append(left, "control group "+dir)
		}
	}
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mountinfo)) {
		if strings.Contains(line, tr.id) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
		for _, ns := range tr.namespaces {
			if strings.Contains(line, ns) {
				left = append(left, "pinned namespace "+strings.TrimSpace(line))
			}
		}
	}
	for _, place := range append(places, "/run", "/tmp", "/var/tmp", "/dev/shm", "/var/lib/cove") {
		left = append(left, namedAfter(place, tr.id)...)
	}
	return left
}

// heldBy lists the sandbox's namespaces that a process is in. The kernel gives the number of a namespace that is gone
// to a new one: a process that is younger than the sandbox has one of those. A namespace of pids is new where its first
// process is younger; one whose first process has ended is not new.
func (tr traces) heldBy(process string) (held []string) {
	first := process
	links, _ := filepath.Glob(process + "/ns/*")
	for _, link := range links {
		ns, err := os.Readlink(link)
		if err != nil || !slices.Contains(tr.namespaces, ns) {
			continue
		}
		held = append(held, "namespace "+ns+" in "+link)
		if strings.HasPrefix(ns, "pid:") {
			first = firstOf(ns)
		}
	}
	if len(held) > 0 && startedAt(first) > tr.taken {
		return nil
	}
	return held
}

// firstOf returns the first process of a namespace of pids, as a directory of /proc; "" if it has ended.
func firstOf(ns string) string {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if is, err := os.Readlink(process + "/ns/pid"); err != nil || is != ns {
			continue
		}
		status, _ := os.ReadFile(process + "/status")
		for line := range strings.Lines(string(status)) {
			if ids, found := strings.CutPrefix(line, "NSpid:"); found && strings.HasSuffix(strings.TrimSpace(ids), "\t1") {
				return process
			}
		}
	}
	return ""
}

// sinceBoot is the time since the machine started.
func sinceBoot() time.Duration {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// startedAt returns when a process of /proc was started, since the machine started (proc_pid_stat(5), field 22); 0 if
// it has ended.
func startedAt(process string) time.Duration {
	const ticks = 100 // a second, as the kernel tells programs on every machine
	stat, _ := os.ReadFile(process + "/stat")
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseInt(f[19], 10, 64)
	return time.Duration(n) * time.Second / ticks
}

// namedAfter lists files below a directory whose name holds a word.
func namedAfter(dir, word string) []string {
	var found []string
	depth := strings.Count(dir, "/")
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if strings.Contains(d.Name(), word) {
			found = append(found, "file "+path)
		}
		if d.IsDir() && strings.Count(path, "/")-depth > 5 {
			return filepath.SkipDir
		}
		return nil
	})
	return found
}

// gone waits until nothing of a sandbox is left.
func (c *trial) gone(tr traces) {
	c.Helper()
	var left []string
	if !eventually(patience, func() bool { left = tr.left(c.suite.state); return len(left) == 0 }) {
		c.Errorf("left behind (H6):\n\t%s", strings.Join(left, "\n\t"))
	}
}

// threadStatuses are the statuses of every thread of a process.
func threadStatuses(pid int) []map[string]string {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	var all []map[string]string
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			all = append(all, parseStatus(b))
		}
	}
	return all
}

// allCapable reports whether the suite, and so its controls, has every
// capability there is. Root of a virtual machine or a container may lack some.
func allCapable() bool {
	own, _ := readProcess(os.Getpid())
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(last)))
	if err != nil {
		return false
	}
	have, err := strconv.ParseUint(own.status["CapEff"], 16, 64)
	all := uint64(1)<<(n+1) - 1
	return err == nil && have&all == all
}
