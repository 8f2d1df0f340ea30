package adversary

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// fileRows are attempts at files and devices of the host (F1, F2, F3, F9).
func fileRows() []row {
	return []row{
		{id: "F1.canary_search", invariant: "H1",
			what: "find a canary of the host's anywhere: every file, link, descriptor and environment", test: canarySearch},
		{id: "F1.canary_paths", invariant: "H1",
			what: "open a canary by its path, and through PID 1's root and working directory", test: canaryPaths},
		{id: "F1.shadow", invariant: "H1", what: "read the host's passwords and keys", deny: hidden,
			inside: []string{"read /etc/passwd"},
			attempts: []string{"read /etc/shadow", "read /etc/gshadow", "list /root", "list /var/lib", "list /boot",
				"list /home/root", "list /proc/1/root/etc"}},
		{id: "F1.accounts", invariant: "H1", what: "learn the host's accounts, names and resolvers from /etc",
			test: generatedEtc},
		{id: "F1.init", invariant: "H1", what: "look into PID 1: its root, descriptors, memory, environment, program",
			deny: hidden, inside: []string{"read /proc/self/environ"},
			attempts: []string{"list /proc/1/root/", "list /proc/1/cwd/", "list /proc/1/fd", "read /proc/1/environ",
				"read /proc/1/mem", "read /proc/1/maps",
				"read /proc/1/auxv", "read /proc/1/syscall", "read /proc/1/stack", "readlink /proc/1/exe", "readlink /proc/1/cwd",
				"open_rdwr /proc/1/mem",
				"open_write /proc/1/oom_score_adj", "open_write /proc/1/clear_refs", "open_write /proc/1/exe",
				"list /proc/1/map_files"}},
		{id: "F2.dev", invariant: "H2", what: "find a device beyond the seven", test: deviceAllowList},
		{id: "F2.nodes", invariant: "H2", what: "find a device node anywhere else", test: noNodes},
		{id: "F2.mknod", invariant: "H3", what: "make a device node", inside: []string{"mknod_fifo"},
			deny: append([]string{"EINVAL"}, denied...),
			attempts: []string{"mknod c 1 1", "mknod c 1 3", "mknod b 8 0", "mknod b 254 0", "mknod c 10 229",
				"mknod c 10 232"}},
		{id: "F2.open", invariant: "H2", what: "open the host's devices", deny: hidden,
			inside: []string{"open_write /dev/null", "read /dev/zero"},
			attempts: []string{"open_write /dev/kmsg", "open_rdwr /dev/mem", "open_rdwr /dev/kvm", "open_rdwr /dev/fuse",
				"open_rdwr /dev/net/tun",
				"open_rdwr /dev/vsock", "open_rdwr /dev/loop0", "open_rdwr /dev/loop-control", "open_rdwr /dev/vda",
				"open_rdwr /dev/sda",
				"open_rdwr /dev/userfaultfd", "open_rdwr /dev/console", "open_rdwr /dev/tty0", "open_rdwr /dev/btrfs-control",
				"open_rdwr /dev/rtc0",
				"open_rdwr /dev/hwrng", "open_rdwr /dev/cpu_dma_latency", "open_rdwr /dev/autofs", "open_rdwr /dev/vhost-net",
				"open_rdwr /dev/dri/card0"}},
		{id: "F3.write_root", invariant: "H2", what: "write into the image's own directories",
			inside: []string{"create /work", "create /tmp", "create " + cove.Home},
			deny:   hidden,
			attempts: []string{"create /", "create /etc", "create /usr", "create /usr/bin", "create /bin", "create /dev",
				"create /proc", "create /sys", "mkdir /lib"}},
		{id: "F3.writable", invariant: "H2", what: "find a writable directory that no limit covers", test: writablePlaces},
		{id: "F3.mount_table", invariant: "H2", what: "find a mount without nosuid, nodev or its limit", test: mountTable},
		{id: "F9.descriptors", invariant: "H1", what: "inherit a descriptor of the host's", test: descriptors},
		{id: "F9.environment", invariant: "C1", what: "inherit an environment", test: environmentClean},
	}
}

// canary is a file of the host's that nobody inside may find.
type canary struct{ path, word string }

// plant makes canaries where a leak would show: homes, temporary and service directories, and the engine's own state.
func (c *trial) plantCanaries() []canary {
	c.Helper()
	var planted []canary
	for _, dir := range []string{"/root", "/home", "/var/tmp", "/tmp", "/opt", "/srv", "/var/lib", "/run", "/etc",
		"/dev/shm", "/usr/local/share", c.suite.state} {
		word := canaryWord()
		path := filepath.Join(dir, "CANARY_"+word)
		if err := os.WriteFile(path, []byte(word+"\n"), 0o644); err != nil {
			continue // no such directory, or not ours
		}
		c.Cleanup(func() { os.Remove(path) })
		planted = append(planted, canary{path, word})
	}
	if len(planted) == 0 {
		c.Fatal("not tested: no canary could be planted")
	}
	return planted
}

// shared reports a canary in a place that the sandbox's root filesystem is
// made of and so shows: it is the control of the search.
func (k canary) shared() bool { return strings.HasPrefix(k.path, "/usr/") }

// canarySearch lets the attacker walk everything. The controls: a canary in the sandbox's own directory is found, by
// name and by content, and so is one in the host's /usr, which the host root filesystem shows on purpose.
func canarySearch(c *trial) {
	planted := c.plantCanaries()
	c.Setenv("COVE_CANARY", planted[0].word)
	b := c.fresh(boxOptions{})
	own := canaryWord()
	ctx := c.Context()
	must(c, b.sandbox.Guest().WriteFile(ctx, "/work/own", 0o644, []byte("x"+own)))
	control := b.try(c, "search "+hex.EncodeToString([]byte(own)))
	if len(control.Lines) == 0 {
		c.Fatalf("not tested: the search does not find what is there: %s", say(control))
	}
	needles := []string{}
	for _, k := range planted {
		if !k.shared() {
			needles = append(needles, hex.EncodeToString([]byte(k.word)))
		}
	}
	r := b.try(c, "search "+strings.Join(needles, " "))
	if r.Outcome != "refused" {
		c.Errorf("HOLE: canaries were found: %s %s", say(r), strings.Join(r.Lines, "; "))
	}
	c.remark("%d canaries, %d files searched", len(planted), control.Count)
}

func canaryPaths(c *trial) {
	b := c.fresh(boxOptions{many: true})
	c.row.deny = hidden
	for _, k := range c.plantCanaries() {
		if k.shared() {
			continue
		}
		for _, path := range []string{k.path, "/proc/1/root" + k.path, "/proc/self/root" + k.path, "/proc/1/cwd" + k.path,
			"/host" + k.path,
			"/../../.." + k.path, "/proc/self/cwd/../../../.." + k.path, "/.cove" + k.path, "/oldroot" + k.path,
			"/.pivot_root" + k.path} {
			c.denied(b, "read "+path)
		}
		if out := c.suite.outside(c, "read "+k.path); !strings.HasPrefix(out.Detail, k.word) {
			c.Errorf("not tested: the canary cannot be read outside: %s", say(out))
		}
	}
}

// generatedEtc compares the files of /etc that say whose machine it is.
func generatedEtc(c *trial) {
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf",
		"/etc/machine-id", "/etc/fstab", "/etc/mtab"} {
		host, err := os.ReadFile(path)
		if err != nil || len(strings.TrimSpace(string(host))) == 0 {
			continue
		}
		r := c.box().try(c, "cat "+path)
		inside, _ := hex.DecodeString(r.Detail)
		if r.Outcome == "succeeded" && string(inside) == string(host) {
			c.Errorf("HOLE: %s inside is the host's", path)
		}
	}
	c.works(c.box(), "cat /etc/passwd")
	name, _ := os.Hostname()
	if r := c.works(c.box(), "read /proc/sys/kernel/hostname"); strings.TrimSpace(r.Detail) == name {
		c.Errorf("HOLE: the sandbox has the host's name %q", name)
	}
}

// allowedDevices are all device nodes that a sandbox may have.
var allowedDevices = []string{"/dev/null c 1:3", "/dev/zero c 1:5", "/dev/full c 1:7", "/dev/random c 1:8",
	"/dev/urandom c 1:9", "/dev/tty c 5:0",
	"/dev/ptmx c 5:2", "/dev/pts/ptmx c 5:2"}

// allowedInDev are the other names under /dev.
var allowedInDev = regexp.MustCompile(
	`^/dev/?( d|pts d|shm d|mqueue d|pts/[0-9]+ c 136:[0-9]+|console c 136:[0-9]+|(fd|stdin|stdout|stderr|core|ptmx) l (/proc/self/fd(/[012])?|/proc/kcore|/dev/null|pts/ptmx|/dev/pts/ptmx))$`)

func deviceAllowList(c *trial) {
	r := c.works(c.box(), "dev_tree")
	for _, line := range r.Lines {
		if !slices.Contains(allowedDevices, line) && !allowedInDev.MatchString(line) {
			c.Errorf("HOLE: there is %s", line)
		}
	}
	for _, need := range []string{"/dev/null c 1:3", "/dev/urandom c 1:9"} {
		if !slices.Contains(r.Lines, need) {
			c.Errorf("not tested: %s is not there; the listing is wrong", need)
		}
	}
	c.remark("%d entries", len(r.Lines))
}

func noNodes(c *trial) {
	if asRoot() {
		root := ""
		b := c.imageBox(func(r string) { root = r; c.plantNode(filepath.Join(r, "node"), devNull) })
		c.row.deny = hidden
		c.denied(b, "open_rdwr /node")
		if out := c.suite.outside(c, "dev_nodes "+root); len(out.Lines) != 1 {
			c.Errorf("not tested: the planted node is not found outside: %s %v", say(out), out.Lines)
		}
	}
	for _, line := range c.works(c.roomy(), "dev_nodes /").Lines {
		if !maskNode.MatchString(line) {
			c.Errorf("HOLE: there is %s", line)
		}
	}
}

// maskNode is a file of /proc behind /dev/null.
var maskNode = regexp.MustCompile(`^/proc/\S+ c 1:3$`)

// writablePlaces compares where files can be made with what the limits cover:
// each of these is the scratch file system, or has a size of its own.
func writablePlaces(c *trial) {
	allowed := regexp.MustCompile(`^(/work|/tmp|/var/tmp|/run|/run/lock|/home/cove|/dev/shm|/dev/mqueue)(/.*)?$`)
	r := c.works(c.roomy(), "writable")
	for _, line := range r.Lines {
		if !allowed.MatchString(line) {
			c.Errorf("HOLE: %s is writable", line)
		}
	}
	if !slices.Contains(r.Lines, "/work") && !slices.Contains(r.Lines, "/tmp") {
		c.Errorf("not tested: the walk found no writable directory: %v", r.Lines)
	}
	c.remark("%s", strings.Join(r.Lines, " "))
}

// mountTable reads the sandbox's own table of mounts, whose flags the kernel
// wrote. The control: the host's table, read the same way, breaks the rules.
func mountTable(c *trial) {
	r := c.works(c.box(), "mountinfo")
	flags := c.suite.caps.MountFlags
	if !flags {
		c.remark("places and their limits only: %s", c.suite.caps.Missing["mount_flags"])
	}
	for _, line := range uncovered(r.Lines) {
		for _, wrong := range mountFaults(line) {
			if c.suite.options.Root && rootMount(line, wrong) {
				continue
			}
			if flags || !strings.HasPrefix(wrong, "no ") {
				c.Errorf("HOLE: %s: %s", wrong, line)
			}
		}
		for _, word := range []string{string(c.box().sandbox.ID()), c.suite.state} {
			if strings.Contains(line, word) && !c.mayShow(line) {
				c.Errorf("HOLE: %s shows the host's %s (P4)", line, word)
			}
		}
	}
	own, _ := os.ReadFile("/proc/self/mountinfo")
	faults := 0
	for line := range strings.Lines(string(own)) {
		for _, wrong := range mountFaults(strings.TrimSpace(line)) {
			if flags || !strings.HasPrefix(wrong, "no ") {
				faults++
			}
		}
	}
	if faults == 0 {
		c.Error("not tested: the host's mounts keep every rule as well")
	}
	c.remark("%d mounts", len(r.Lines))
}

// uncovered are the lines of mountinfo without the mounts that lie under
// another one at the same place, which no path reaches any more.
func uncovered(lines []string) []string {
	type mount struct{ id, parent, target string }
	var all []mount
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, mount{f[0], f[1], f[4]})
		}
	}
	hidden := map[string]bool{}
	for _, below := range all {
		on := slices.IndexFunc(all, func(m mount) bool { return m.parent == below.id && m.target == below.target })
		hidden[below.id] = on >= 0
	}
	// A mount on a hidden one is hidden too, but for what hides it.
	parents := map[string]mount{}
	for _, m := range all {
		parents[m.id] = m
	}
	var reached []string
	for i, m := range all {
		covered := hidden[m.id]
		for at := m; !covered; {
			above, ok := parents[at.parent]
			if !ok || above.id == at.id {
				break
			}
			covered = hidden[above.id] && above.target != at.target
			at = above
		}
		if !covered {
			reached = append(reached, lines[i])
		}
	}
	return reached
}

func (c *trial) mayShow(line string) bool {
	return slices.ContainsFunc(c.suite.options.HostPaths, func(p string) bool { return strings.Contains(line, p) })
}

// mountFaults judges one line of mountinfo.
func mountFaults(line string) []string {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 2 {
		return []string{"unreadable"}
	}
	target, options, kind := left[4], strings.Split(left[5], ","), right[0]
	has := func(o string) bool { return slices.Contains(options, o) }
	var faults []string
	if !has("nosuid") {
		faults = append(faults, "no nosuid")
	}
	device := strings.HasPrefix(target, "/dev")
	null := left[3] == "/null" && strings.HasPrefix(target, "/proc/") // a file behind /dev/null
	mask := null && has("ro")
	if !has("nodev") && !device && !mask {
		faults = append(faults, "no nodev")
	}
	if !has("noexec") && (target == "/proc" || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys") ||
		target == "/dev") {
		faults = append(faults, "no noexec")
	}
	writable := regexp.MustCompile(
		`^(/|/work|/tmp|/var/tmp|/run|/home/cove|/home|/dev/shm|/dev/mqueue|/dev/pts|/dev/(null|zero|full|random|urandom|tty|ptmx|console)|/proc|/workspace.*)$`)
	if !has("ro") && !writable.MatchString(target) && !(kind == "tmpfs" && device) &&
		!strings.HasPrefix(target, "/proc/") {
		faults = append(faults, "writable")
	}
	if slices.Contains([]string{"cgroup", "sysfs", "debugfs", "tracefs", "securityfs", "bpf", "configfs", "devtmpfs",
		"fusectl", "binfmt_misc", "nsfs"}, kind) && !has("ro") && !device && !null {
		faults = append(faults, "a writable "+kind)
	}
	return faults
}

// descriptors looks at what a process is born with, with and without input and
// a terminal. The control: a descriptor that is inherited is seen.
func descriptors(c *trial) {
	b := c.box()
	for _, how := range []string{"plain", "stdin", "tty"} {
		s := spec("fds")
		s.Stdin, s.TTY = how == "stdin", how == "tty"
		if s.TTY {
			s.Rows, s.Cols = 24, 80
		}
		p := b.start(c, s)
		if p == nil {
			return
		}
		if s.Stdin {
			p.Stdin().Close()
		}
		r := p.wait(patience).result
		var numbers []string
		for _, line := range r.Lines {
			n, target, _ := strings.Cut(line, " ")
			numbers = append(numbers, n)
			if !regexp.MustCompile(`^(pipe:|/dev/null|/dev/pts/|/dev/tty|socket:|anon_inode:\[eventfd\]$)`).MatchString(target) {
				c.Errorf("HOLE: %s: descriptor %s is %s", how, n, target)
			}
		}
		if fmt.Sprint(numbers) != "[0 1 2]" {
			c.Errorf("HOLE: %s: descriptors %v: %v", how, numbers, r.Lines)
		}
	}
	s := spec("fds")
	s.Args = []string{"/bin/sh", "-c", "exec 7</etc; exec " + probeInside + " fds"}
	if r := b.run(c, s); r.err == nil && r.exit.Code == 0 && !strings.Contains(r.stdout, `"7 /etc"`) {
		c.Errorf("not tested: an inherited descriptor is not seen: %s", r.stdout)
	}
}

// environmentClean looks for variables that nobody gave.
func environmentClean(c *trial) {
	c.Setenv("COVE_CANARY", canaryWord())
	r := c.works(c.fresh(boxOptions{}), "env")
	allowed := append(spec("env").Env, "PWD="+cove.WorkDir)
	for _, kv := range r.Lines {
		if !slices.Contains(allowed, kv) {
			c.Errorf("HOLE: nobody gave %s", kv)
		}
	}
	if len(r.Lines) < 3 {
		c.Errorf("not tested: the environment is %v", r.Lines)
	}
}
