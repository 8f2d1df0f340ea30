package adversary

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// exhaustionRows are attempts to take more than one's share (H4; C3 to C7).
func exhaustionRows() []row {
	memory := func(id, what, attempt string, kernel bool) row {
		return row{id: "C4." + id, invariant: "H4", what: what, test: func(c *trial) { c.memoryBomb(attempt, kernel) }}
	}
	return []row{
		{id: "C3.fork_bomb", invariant: "H4", what: "fork without end", test: forkBomb},
		{id: "C3.threads", invariant: "H4", what: "start threads without end", test: threadBomb},
		{id: "C3.zombies", invariant: "H4", what: "leave children that nobody waits for", test: zombieStorm},
		memory("anonymous", "take memory", "mem_anon 512", false),
		memory("tmpfs", "take memory as files", "mem_file /tmp 512", true),
		memory("shm", "take memory as shared files", "mem_file /dev/shm 512", true),
		memory("children", "take memory in many processes", "mem_children 12 32", false),
		memory("maps", "take the kernel's memory by mappings", "mem_maps 60000", true),
		memory("pipes", "take the kernel's memory by pipes", "mem_pipes 512", true),
		memory("sockets", "take the kernel's memory by sockets", "mem_sockets 512", true),
		{id: "C4.tcp", invariant: "H4", what: "take the kernel's memory by the buffers of TCP",
			test: func(c *trial) { c.socketBuffers("tcp") }},
		{id: "C4.udp", invariant: "H4", what: "take the kernel's memory by the buffers of UDP",
			test: func(c *trial) { c.socketBuffers("udp") }},
		memory("semaphores", "take the kernel's memory by System V semaphores", "mem_sems 200", true),
		memory("epoll", "take the kernel's memory by watches of epoll", "mem_epoll 500", true),
		memory("files", "take the kernel's memory by open files", "mem_files", true),
		memory("dentries", "take the kernel's memory by names that do not exist", "mem_dentries 100000 /usr", true),
		memory("page_cache", "take memory by reading", "mem_cache /usr 96", true),
		{id: "C4.mlock", alone: true, invariant: "H4", what: "lock memory", attempts: []string{"lock_memory", "mem_lock 64"}, deny: append([]string{"ENOMEM", "EAGAIN"}, denied...),
			inside: []string{"getpid"}},
		{id: "C4.swap", invariant: "H4", what: "use swap beyond the memory limit", test: noSwap},
		{id: "C5.bytes", invariant: "H4", what: "fill every writable place at once", test: diskBytes},
		{id: "C5.inodes", invariant: "H4", what: "make files without end", test: diskInodes},
		{id: "C5.directories", invariant: "H4", what: "make directories inside each other without end", test: deepDirectories},
		{id: "C5.sparse", invariant: "H4", what: "make a file of a terabyte", test: sparseFile},
		{id: "C5.pipe_size", invariant: "H4", what: "make a pipe of 16 MiB", attempts: []string{"set_pipe 16777216"}, inside: []string{"set_pipe 65536"}, test: nil},
		{id: "C6.quota", invariant: "H4", what: "burn more CPU than the quota with many threads", test: cpuQuota},
		{id: "C7.descriptors", invariant: "H4", what: "open descriptors without end", test: descriptorLimit},
		{id: "C7.terminals", invariant: "H4", what: "use up the machine's terminals", test: terminalLimit},
		{id: "C7.accounts", invariant: "H4", what: "use up what the kernel counts for the user who made the sandbox",
			test: userAccounts},
		{id: "C7.signals", invariant: "H4", what: "have a guest wait for ever by signals of the host's user",
			test: signalsTaken},
		{id: "C7.passed", invariant: "H4", what: "have as many descriptors on their way as the kernel has for a user",
			test: passedDescriptors},
		{id: "C7.file_table", invariant: "H4", what: "use up the host's table of open files", test: fileTable},
		{id: "C7.pipes", invariant: "H4", what: "use up the room that the kernel has for a user's pipes", test: pipeRoom},
		{id: "C7.connections", invariant: "H4", what: "fill the host's table of tracked connections",
			test: trackedConnections},
		{id: "C7.locks", alone: true, invariant: "H4", what: "use up the host's memory by locks of files", test: fileLocks},
		{id: "C7.filters", alone: true, invariant: "H4", what: "use up the host's memory by compiled filters",
			test: ownFilters},
		{id: "H4.refused", invariant: "H4", what: "be started with a limit that is none", test: absurdLimits},
	}
}

// crowded is a sandbox that is about to do harm, and a neighbour that must not notice.
func (c *trial) crowded(change func(*cove.Limits)) (attacker *tenant, neighbour *box) {
	c.Helper()
	neighbour = c.fresh(boxOptions{})
	attacker = c.occupied(boxOptions{limits: change})
	return attacker, neighbour
}

// unharmed checks that the neighbour and the host work, and that the attacker can be ended.
func (c *trial) unharmed(attacker *tenant, neighbour *box) {
	c.Helper()
	c.works(neighbour, "fork")
	tr := attacker.traces()
	attacker.kill(c)
	attacker.destroy(c)
	c.gone(tr)
}

func forkBomb(c *trial) {
	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.PIDs = 40 })
	p := attacker.start(c, spec("fork_bomb 600"))
	if p == nil {
		return
	}
	if !p.said("refused") {
		c.Errorf("HOLE: no fork was refused: %s%s", p.stdout.String(), p.stderr.String())
	}
	s := attacker.stats(c)
	if s.PIDsPeak > attacker.limits.PIDs || s.PIDs > attacker.limits.PIDs {
		c.Errorf("HOLE: %d tasks, %d at most, with a limit of %d", s.PIDs, s.PIDsPeak, attacker.limits.PIDs)
	}
	if s.PIDsDenied == 0 {
		c.Errorf("refused forks are not reported: %+v", s)
	}
	if s.PIDsPeak < attacker.limits.PIDs/2 {
		c.Errorf("not tested: %d tasks at most", s.PIDsPeak)
	}
	c.remark("at most %d tasks, %d forks refused", s.PIDsPeak, s.PIDsDenied)
	c.unharmed(attacker, neighbour)
}

func threadBomb(c *trial) {
	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.PIDs = 40 })
	r := attacker.try(c, "thread_bomb 400")
	if r.Outcome != outcome.Refused || r.Errno != "EAGAIN" {
		c.Errorf("HOLE: 400 threads: %s", say(r))
	}
	if s := attacker.stats(c); s.PIDsPeak > attacker.limits.PIDs || s.PIDsDenied == 0 {
		c.Errorf("HOLE: %+v with a limit of %d", s, attacker.limits.PIDs)
	}
	c.works(attacker.box, "thread_bomb 8")
	c.unharmed(attacker, neighbour)
}

func zombieStorm(c *trial) {
	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.PIDs = 40 })
	r := attacker.try(c, "zombies 400")
	if r.Errno != "EAGAIN" || r.Count > 40 {
		c.Errorf("HOLE: %d zombies: %s", r.Count, say(r))
	}
	// They go with their parent, and the sandbox is as good as new.
	if !eventually(patience, func() bool { return attacker.stats(c).PIDs < 20 }) {
		c.Errorf("%d tasks are left", attacker.stats(c).PIDs)
	}
	c.works(attacker.box, "zombies 8")
	c.unharmed(attacker, neighbour)
}

// memoryBomb takes far more than the limit. kernel says that the kernel may also refuse or reclaim instead of killing.
func (c *trial) memoryBomb(attempt string, kernel bool) {
	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.Memory, l.Disk, l.OpenFiles = 64<<20, 48<<20, 1024 })
	if strings.Contains(attempt, "_file") {
		attacker.destroy(c)
		attacker = c.occupied(boxOptions{limits: func(l *cove.Limits) { l.Memory, l.Disk = 64<<20, 512<<20 }})
	}
	before, rss := available(), resident()
	r := attacker.run(c, spec(attempt))
	s := attacker.stats(c)
	killed := r.exit.Signal == 9 || s.OOMKills > 0
	switch {
	case r.err != nil && attacker.alive():
		c.Errorf("not tested: %v", r.err)
	case !killed && !kernel:
		c.Errorf("HOLE: %s was not stopped: %s, %+v", attempt, say(r.result), s)
	}
	// The kernel accounts in batches per processor, so a little beyond is its rounding.
	if slack := int64(8 << 20); s.MemoryPeak > attacker.limits.Memory+slack {
		c.Errorf("HOLE: the sandbox had %d MiB, its limit is %d", s.MemoryPeak>>20, attacker.limits.Memory>>20)
	}
	if killed && s.OOMKills == 0 {
		c.Errorf("a process was killed for memory and that is not reported: %+v", s)
	}
	if lost := before - available(); lost > 200<<20 {
		c.Logf("the host has %d MiB less than before", lost>>20)
	}
	if grown := resident() - rss; grown > 64<<20 {
		c.Errorf("HOLE: the host's own process has grown by %d MiB", grown>>20)
	}
	if s.MemoryPeak < 4<<20 {
		c.Errorf("not tested: at most %d MiB were taken", s.MemoryPeak>>20)
	}
	if !attacker.alive() {
		c.remark("the guest was killed with it")
	}
	c.remark("peak %d MiB of %d, %d killed, %s", s.MemoryPeak>>20, attacker.limits.Memory>>20, s.OOMKills, r.result.Errno)
	c.unharmed(attacker, neighbour)
}

// socketBuffers fills sockets on loopback far beyond the limit of memory. The oracle is the kernel's account of all
// buffers of the machine, on the host: control groups of version 1 do not count them as memory.
func (c *trial) socketBuffers(network string) {
	if !c.suite.caps.SocketLimit {
		c.lacking("%s", c.suite.caps.Missing["socket_limit"])
	}
	const wanted = 80 // MiB
	fill := fmt.Sprintf("mem_network %s %d", network, wanted)
	before := bufferPages(c, network)
	taken := func() int64 { return (bufferPages(c, network) - before) * int64(os.Getpagesize()) }

	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.Memory, l.OpenFiles = 32<<20, 2048 })
	empty := attacker.box.held(c, fill, "full")
	inside := taken()
	if most := attacker.limits.Memory + 8<<20; inside > most {
		c.Errorf("HOLE: %d MiB in buffers beside a limit of %d MiB of memory", inside>>20, attacker.limits.Memory>>20)
	}
	if killed := attacker.stats(c).OOMKills > 0; !killed && inside < 1<<20 {
		c.Errorf("not tested: %d KiB in buffers", inside>>10)
	}
	empty()
	emptyOutside := c.suite.heldOutside(c, fill, "full")
	outside := taken()
	emptyOutside()
	if outside < 2*inside {
		c.Errorf("not tested: %d MiB in buffers without a sandbox, %d MiB with one", outside>>20, inside>>20)
	}
	empty = neighbour.held(c, "mem_network "+network+" 4", `"count":4`)
	if r := empty().result; r.Outcome != outcome.Succeeded {
		c.Errorf("not tested: the neighbour's own socket: %s", say(r))
	}
	c.remark("%d MiB in buffers, %d MiB without a sandbox", inside>>20, outside>>20)
	c.unharmed(attacker, neighbour)
}

// bufferPages is what the kernel has in buffers of TCP or UDP of the whole machine, in pages.
func bufferPages(c *trial, network string) int64 {
	c.Helper()
	b, err := os.ReadFile("/proc/net/sockstat")
	must(c, err)
	for line := range strings.Lines(string(b)) {
		if name, counts, _ := strings.Cut(line, ": "); name == strings.ToUpper(network) {
			_, mem, _ := strings.Cut(counts, " mem ")
			n, err := strconv.ParseInt(strings.Fields(mem)[0], 10, 64)
			must(c, err)
			return n
		}
	}
	c.Fatalf("not tested: no account of %s", network)
	return 0
}

// available is the host's memory that can be had.
func available() int64 { return meminfo("MemAvailable") }

func meminfo(key string) int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key+":" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// resident is this process's memory.
func resident() int64 {
	p, _ := readProcess(os.Getpid())
	n, _ := strconv.ParseInt(strings.TrimSuffix(p.status["VmRSS"], " kB"), 10, 64)
	return n << 10
}

// noSwap reads from the host what the sandbox may swap.
func noSwap(c *trial) {
	t := c.occupied(boxOptions{})
	seen := false
	for hierarchy, dir := range cgroups(t.user.pid) {
		for file, want := range map[string]func(string) bool{
			"memory.swap.max":             func(s string) bool { return s == "0" },
			"memory.memsw.limit_in_bytes": func(s string) bool { n, _ := strconv.ParseInt(s, 10, 64); return n <= t.limits.Memory },
			"memory.swappiness":           func(s string) bool { return s == "0" },
		} {
			b, err := os.ReadFile(dir + "/" + file)
			if err != nil {
				continue
			}
			value := strings.TrimSpace(string(b))
			c.remark("%s is %s", file, value)
			if file == "memory.swappiness" {
				if _, err := os.Stat(dir + "/memory.memsw.limit_in_bytes"); err == nil {
					continue // the limit decides
				}
			}
			seen = true
			if !want(value) {
				c.Errorf("HOLE: %s of %s is %s", file, hierarchy, value)
			}
		}
	}
	if !seen {
		if meminfo("SwapTotal") == 0 {
			c.lacking("this kernel has no account of swap, and this host has no swap")
		}
		c.Error("HOLE: nothing limits swap, and this host has some")
	}
}

// writableDirs are the places that a sandbox's limits cover together.
func (s *suite) writableDirs() string {
	all := []string{"/work", "/tmp", "/var/tmp", "/run", "/dev/shm", s.options.user().Home}
	if s.options.Root {
		all = append(all, "/etc", "/usr/bin")
	}
	return strings.Join(all, " ")
}

// disks counts the file systems of the limit's size that a sandbox writes to: one in memory, and one that keeps its
// layer.
func (s *suite) disks() int64 {
	if s.options.Layer != nil {
		return 2
	}
	return 1
}

// diskBytes fills all writable places, each beyond the limit; together they must hold no more than their disks.
func diskBytes(c *trial) {
	b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.Disk, l.Memory = 24<<20, 192<<20 }})
	free := diskFree(c)
	r := b.try(c, "disk_fill 96 "+c.suite.writableDirs())
	if r.Errno != "ENOSPC" && r.Errno != "EDQUOT" && r.Errno != "EFBIG" {
		c.Errorf("HOLE: %s, %v", say(r), r.Lines)
	}
	if r.Count > c.suite.disks()*b.limits.Disk+1<<20 {
		c.Errorf("HOLE: %d MiB were written together, the limit is %d: %v", r.Count>>20, b.limits.Disk>>20, r.Lines)
	}
	if r.Count < b.limits.Disk/3 {
		c.Errorf("not tested: %d MiB were written: %v", r.Count>>20, r.Lines)
	}
	if lost := free - diskFree(c); lost > 512<<20 {
		c.Errorf("HOLE: the host's disk has %d MiB less", lost>>20)
	}
	c.works(b, "create /tmp")
	c.remark("%d MiB of %d: %s", r.Count>>20, b.limits.Disk>>20, strings.Join(r.Lines, ", "))
}

func diskInodes(c *trial) {
	b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.Inodes = 500 }})
	r := b.try(c, "inode_fill 3000 "+c.suite.writableDirs())
	if r.Errno != "ENOSPC" && r.Errno != "EDQUOT" {
		c.Errorf("HOLE: %s, %v", say(r), r.Lines)
	}
	if r.Count > c.suite.disks()*b.limits.Inodes+64 {
		c.Errorf("HOLE: %d files were made together, the limit is %d: %v", r.Count, b.limits.Inodes, r.Lines)
	}
	if r.Count < b.limits.Inodes/2 {
		c.Errorf("not tested: %d files: %v", r.Count, r.Lines)
	}
	c.remark("%d files of %d", r.Count, b.limits.Inodes)
}

func deepDirectories(c *trial) {
	t := c.occupied(boxOptions{limits: func(l *cove.Limits) { l.Inodes = 3000 }})
	r := t.try(c, "dir_deep 100000 /work")
	if r.Outcome != outcome.Refused || r.Count > 3100 {
		c.Errorf("HOLE: %d directories: %s", r.Count, say(r))
	}
	began := time.Now()
	tr := t.traces()
	t.destroy(c)
	c.gone(tr)
	c.remark("%d deep, gone after %v", r.Count, time.Since(began).Round(time.Millisecond))
}

func sparseFile(c *trial) {
	b := c.fresh(boxOptions{})
	free := diskFree(c)
	r := b.try(c, "sparse 1099511627776 /work")
	if lost := free - diskFree(c); lost > 512<<20 {
		c.Errorf("HOLE: the host's disk has %d MiB less", lost>>20)
	}
	if r.Outcome == outcome.Succeeded {
		c.Errorf("HOLE: a file of a terabyte, beyond RLIMIT_FSIZE")
	}
	c.works(b, "sparse 1048576 /work")
	c.remark("%s", say(r))
}

func diskFree(c *trial) int64 {
	free, err := freeBytes(c.suite.state)
	must(c, err)
	return free
}

// cpuQuota burns with many threads and compares the kernel's account with the time that passed, so a slow machine does
// not matter: a sandbox can only get less. The control is one with a larger quota.
func cpuQuota(c *trial) {
	measure := func(cpus float64) float64 {
		b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.CPUs = cpus }})
		before, began := b.stats(c).CPUTime, time.Now()
		c.works(b, "spin 4 2000")
		return (b.stats(c).CPUTime - before).Seconds() / time.Since(began).Seconds()
	}
	quarter, one := measure(0.25), measure(1)
	// A period is 100 ms, so one more of it than the time allows can be used.
	if quarter > 0.25*1.35 {
		c.Errorf("HOLE: %.2f processors were used with a quota of 0.25", quarter)
	}
	if one > 1.2 {
		c.Errorf("HOLE: %.2f processors were used with a quota of 1", one)
	}
	if one < quarter*1.15 {
		c.remark("not decisive: the machine is busy")
	}
	c.remark("%.2f of 0.25, %.2f of 1", quarter, one)
}

// absurdLimits asks for limits that a kernel would read as none.
func absurdLimits(c *trial) {
	for name, change := range map[string]func(*cove.Limits){
		"negative memory": func(l *cove.Limits) { l.Memory = -1 },
		"negative pids":   func(l *cove.Limits) { l.PIDs = -1 },
		"negative disk":   func(l *cove.Limits) { l.Disk = -1 },
		"negative inodes": func(l *cove.Limits) { l.Inodes = -1 },
		"negative files":  func(l *cove.Limits) { l.OpenFiles = -1 },
		"negative cpus":   func(l *cove.Limits) { l.CPUs = -1 },
	} {
		b, err := c.suite.make(c, boxOptions{limits: change, bare: true})
		if err != nil {
			c.Logf("%s: refused: %v", name, err)
			continue
		}
		b.destroy(c)
		c.Errorf("HOLE: a sandbox with %s was made", name)
	}
	c.works(c.box(), "getpid")
}

// outputRows are attempts through what a process prints (C8, H4).
func outputRows() []row {
	return []row{
		{id: "C8.flood", invariant: "H4", what: "print without end", test: outputFlood},
		{id: "C8.cap", invariant: "H4", what: "print far beyond what is kept", test: outputCap},
		{id: "C8.one_line", invariant: "H4", what: "print one line without end", test: oneLine},
		{id: "C8.bytes", invariant: "H7", what: "print escape sequences, invalid UTF-8 and every byte", test: everyByte},
		{id: "C8.arguments", invariant: "H4", what: "be started with huge arguments or environment", test: hugeArguments},
		{id: "C8.stalled_reader", invariant: "H4", what: "print while nobody reads", test: stalledReader},
	}
}

func outputFlood(c *trial) {
	b := c.fresh(boxOptions{})
	rss := resident()
	for _, stream := range []string{"1", "2"} {
		s := spec("flood 48 " + stream)
		s.StdoutLimit, s.StderrLimit = 1<<20, 256<<10
		r := b.run(c, s)
		if r.err != nil {
			c.Fatalf("not tested: %v", r.err)
		}
		kept, dropped := len(r.stdout), r.exit.StdoutDropped
		if stream == "2" {
			kept, dropped = len(r.stderr), r.exit.StderrDropped
		}
		if kept > 1<<20 || dropped < 40<<20 {
			c.Errorf("HOLE: stream %s: %d bytes kept, %d dropped", stream, kept, dropped)
		}
	}
	if grown := resident() - rss; grown > 64<<20 {
		c.Errorf("HOLE: the host's own process has grown by %d MiB", grown>>20)
	}
	if !b.alive() {
		c.Error("HOLE: the guest has died")
	}
}

func outputCap(c *trial) {
	b := c.fresh(boxOptions{})
	s := spec("flood 256")
	s.StdoutLimit, s.StderrLimit, s.OutputCap = 1<<20, 256<<10, 8<<20
	r := b.run(c, s)
	if r.err != nil || !r.exit.OutputCapped || r.exit.Signal == 0 {
		c.Errorf("HOLE: 256 MiB with a cap of 8: %+v %v", r.exit, r.err)
	}
}

func oneLine(c *trial) {
	b := c.fresh(boxOptions{})
	rss := resident()
	s := spec("one_line 32")
	s.StdoutLimit, s.StderrLimit = 1<<20, 256<<10
	r := b.run(c, s)
	if r.err != nil || len(r.stdout) > 1<<20 || r.exit.StdoutDropped < 30<<20 {
		c.Errorf("HOLE: %d bytes kept, %d dropped, %v", len(r.stdout), r.exit.StdoutDropped, r.err)
	}
	if grown := resident() - rss; grown > 64<<20 {
		c.Errorf("HOLE: the host's own process has grown by %d MiB", grown>>20)
	}
}

// everyByte checks that what was printed arrives as it was, which is what lets the edges escape it.
func everyByte(c *trial) {
	r := c.box().run(c, spec("bytes"))
	if r.err != nil {
		c.Fatal("not tested: ", r.err)
	}
	for i := range 256 {
		if r.stdout[i] != byte(i) {
			c.Fatalf("byte %d arrived as %d", i, r.stdout[i])
		}
	}
	if !strings.HasSuffix(r.stdout, "event: done\n\n") {
		c.Errorf("the end is missing: %q", r.stdout[256:])
	}
}

func hugeArguments(c *trial) {
	b := c.fresh(boxOptions{})
	for name, s := range map[string]func() (args, env int){
		"one argument of 900 KiB":      func() (int, int) { return 900 << 10, 0 },
		"an environment of 900 KiB":    func() (int, int) { return 0, 900 << 10 },
		"an argument beyond the frame": func() (int, int) { return 3 << 20, 0 },
	} {
		args, env := s()
		p := spec("true")
		if args > 0 {
			p.Args = append(p.Args, strings.Repeat("a", args))
		}
		if env > 0 {
			p.Env = append(p.Env, "BIG="+strings.Repeat("e", env))
		}
		ctx, cancel := c.fileAPI()
		remote, err := b.sandbox.Guest().Start(ctx, p)
		if err == nil {
			_, err = remote.Wait(ctx)
		}
		cancel()
		c.answers(b, name, err)
		c.Logf("%s: %v", name, err)
	}
	many := spec("true")
	for range 20000 {
		many.Args = append(many.Args, "x")
	}
	if r := b.run(c, many); r.err != nil {
		c.Errorf("not tested: 20000 small arguments: %v", r.err)
	}
}

// stalledReader reads nothing: the program has to stall, and nobody's memory may grow.
func stalledReader(c *trial) {
	b := c.fresh(boxOptions{})
	s := spec("flood 512")
	rss := resident()
	p, err := b.sandbox.Guest().Start(c.Context(), s)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	time.Sleep(time.Second)
	if grown := resident() - rss; grown > 32<<20 {
		c.Errorf("HOLE: the host's own process has grown by %d MiB", grown>>20)
	}
	select {
	case <-p.Exited():
		c.Error("HOLE: 512 MiB went somewhere")
	default:
	}
	if st := b.stats(c); st.MemoryPeak > b.limits.Memory {
		c.Errorf("HOLE: %+v", st)
	}
	c.works(b, "fork")
	p.Signal(c.Context(), 9)
}
