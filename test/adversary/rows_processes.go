package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// processRows are processes that do not want to go, and crashes that the host might act on (C9, X2, core dumps).
func processRows() []row {
	return []row{
		{id: "C9.stubborn", invariant: "H6", what: "ignore every signal", test: func(c *trial) { c.outlives("stubborn %s") }},
		{id: "C9.daemon", invariant: "H6", what: "leave a session of one's own behind",
			test: func(c *trial) { c.outlives("daemon %s") }},
		{id: "C9.stopped", invariant: "H6", what: "be stopped when the end comes", test: stopped},
		{id: "C9.alone", invariant: "H6", what: "go on after the process whose end ends all", test: daemonAlone},
		{id: "C9.orphans", invariant: "H4", what: "leave more orphans than the sandbox may have processes",
			test: orphansReaped},
		{id: "X2.guest_killed", invariant: "H6", what: "have PID 1 die: reported, everything gone, neighbours untouched",
			test: guestKilled},
		{id: "X2.guest_stopped", invariant: "H6", what: "have PID 1 hang", test: guestStopped},
		{id: "X2.guest_oom", invariant: "H4", what: "have the kernel kill PID 1 for memory instead of the attacker",
			test: guestOOM},
		{id: "H3.core_file", invariant: "H3", what: "have a core file written, inside or on the host", test: coreFile},
		{id: "H3.core_handler", invariant: "H3",
			what: "have the host's crash handler started with a process of the attacker's", test: coreHandler},
	}
}

// outlives starts what does not want to go, destroys the sandbox, and looks for it on the host.
func (c *trial) outlives(attempt string) {
	c.Helper()
	t := c.occupied(boxOptions{})
	word := token()
	p := t.start(c, spec(fmt.Sprintf(attempt, word)))
	if p == nil {
		return
	}
	if !p.said("outcome") || len(marked(word)) == 0 {
		c.Fatal("not tested: the process is not seen on the host")
	}
	p.Signal(c.Context(), int(unix.SIGTERM))
	time.Sleep(100 * time.Millisecond)
	if len(marked(word)) == 0 {
		c.remark("SIGTERM was enough")
	}
	tr := t.traces()
	began := time.Now()
	t.destroy(c)
	c.gone(tr)
	tr.word = word
	c.gone(tr)
	c.remark("gone after %v", time.Since(began).Round(time.Millisecond))
}

func stopped(c *trial) {
	t := c.occupied(boxOptions{})
	if err := t.held.Signal(c.Context(), int(unix.SIGSTOP)); err != nil {
		c.Fatal("not tested: ", err)
	}
	if !eventually(patience, func() bool {
		p, ok := readProcess(t.user.pid)
		return ok && strings.HasPrefix(p.status["State"], "T")
	}) {
		c.Fatal("not tested: the process does not stop")
	}
	tr := t.traces()
	t.destroy(c)
	c.gone(tr)
}

// daemonAlone ends with a process that is alone: whatever it left goes too, and the sandbox lives.
func daemonAlone(c *trial) {
	t := c.occupied(boxOptions{})
	word := token()
	s := spec("daemon " + word)
	s.Alone = true
	p := t.start(c, s)
	if p == nil {
		return
	}
	if r := p.wait(patience); r.err != nil {
		c.Fatalf("the process did not end although it was alone: %v", r.err)
	}
	if !eventually(patience, func() bool { return len(marked(word)) == 0 }) {
		c.Errorf("HOLE: %d processes go on", len(marked(word)))
	}
	if !t.alive() {
		c.Error("HOLE: the guest has died")
	}
}

func orphansReaped(c *trial) {
	b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.PIDs = 32 }})
	if r := b.try(c, "fork_exit 400"); r.Outcome != "succeeded" || r.Count != 400 {
		c.Errorf("HOLE: orphans are not reaped, so a sandbox can be blocked: %s after %d", say(r), r.Count)
	}
	if !eventually(patience, func() bool { return b.stats(c).PIDs <= 2 }) {
		c.Errorf("%d tasks are left", b.stats(c).PIDs)
	}
}

// guestKilled kills PID 1 from the host.
func guestKilled(c *trial) {
	if !asRoot() {
		c.remark("run by the caller's own id")
	}
	victim, other := c.occupied(boxOptions{}), c.occupied(boxOptions{})
	tr := victim.traces()
	must(c, unix.Kill(victim.guest.pid, unix.SIGKILL))
	select {
	case <-victim.sandbox.Done():
	case <-time.After(patience):
		c.Error("HOLE: the end of PID 1 is not reported")
	}
	if r := victim.held.wait(patience); r.err == nil {
		c.Errorf("the process of a dead sandbox ended as if nothing was: %+v", r.exit)
	}
	victim.stats(c)
	if !other.alive() {
		c.Error("HOLE: another sandbox has died")
	}
	victim.destroy(c)
	c.gone(tr)
}

// guestStopped stops PID 1 from the host: whatever the guest could do about its sandbox's end, it does not.
func guestStopped(c *trial) {
	victim := c.occupied(boxOptions{})
	tr := victim.traces()
	must(c, unix.Kill(victim.guest.pid, unix.SIGSTOP))
	began := time.Now()
	victim.kill(c)
	victim.destroy(c)
	c.gone(tr)
	c.remark("gone after %v", time.Since(began).Round(time.Millisecond))
}

// guestOOM takes all memory in many small processes. The guest shares the
// sandbox's limit, and must not be the one that is chosen.
func guestOOM(c *trial) {
	b := c.fresh(boxOptions{})
	for range 3 {
		r := b.run(c, spec("mem_anon 300"))
		if r.err == nil && r.result.Outcome == "succeeded" {
			c.Errorf("HOLE: 300 MiB fit into %d", b.limits.Memory)
		}
		b.try(c, "mem_children 6 40")
	}
	if !b.alive() {
		c.Error("HOLE: the guest was killed for the attacker's memory")
	}
	if s := b.stats(c); s.OOMKills == 0 {
		c.Errorf("not tested: no process was killed: %+v", s)
	}
	c.works(b, "fork")
}

// coreFile crashes in every writable directory, with the limit of core files
// raised as far as it goes. The control crashes outside, where a file appears.
func coreFile(c *trial) {
	dir := ""
	o := boxOptions{}
	if c.suite.caps.LateMount {
		dir = c.mountable(1234)
		must(c, os.Chmod(dir, 0o777))
		o.mounts = []cove.Mount{{Source: dir, Target: cove.Workspace}}
	}
	b := c.fresh(o)
	hostBefore := coreFiles()
	places := []string{"/work", "/tmp", c.suite.options.user().Home}
	if dir != "" {
		places = append(places, cove.Workspace)
	}
	for _, place := range places {
		r := b.run(c, spec("abort "+place))
		if r.exit.Signal != int(unix.SIGABRT) {
			c.Errorf("not tested: the process did not crash: %+v %s", r.exit, say(r.result))
		}
		ctx, cancel := c.fileAPI()
		infos, err := b.sandbox.Guest().List(ctx, place)
		cancel()
		must(c, err)
		for _, f := range infos {
			if strings.HasPrefix(f.Name, "core") {
				c.Errorf("HOLE: %s/%s was written", place, f.Name)
			}
		}
	}
	if after := coreFiles(); len(after) > len(hostBefore) {
		c.Errorf("HOLE: the host has %v", after)
	}
	pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	if strings.HasPrefix(string(pattern), "|") || strings.Contains(string(pattern), "/") {
		c.remark("this host's core_pattern is %.40q", pattern)
		return
	}
	out := c.suite.outside(c, "abort_and_look")
	if out.Outcome != "succeeded" {
		c.remark("the control outside leaves no core file either: %s", say(out))
	}
}

// coreFiles are core files in the places where a host has them.
func coreFiles() []string {
	var all []string
	for _, dir := range []string{"/", "/root", "/tmp", "/var/crash", "/var/lib/systemd/coredump", "/var/core"} {
		found, _ := filepath.Glob(dir + "/core*")
		all = append(all, found...)
	}
	return all
}

// coreHandler: where core_pattern begins with a pipe, the kernel starts the host's handler as root for every crash,
// whatever the limit of core files, unless that limit is exactly 1 (fs/coredump.c). So it has to be 1, and has to stay
// so.
func coreHandler(c *trial) {
	r := c.works(c.box(), "core_limit")
	if r.Count != 1 {
		c.Errorf(
			"HOLE: the limit of core files is %s, and only 1 keeps a piped core_pattern from starting the host's handler",
			r.Detail)
	}
	c.row.deny = append([]string{"UNCHANGED"}, denied...)
	c.denied(c.box(), "core_limit_set 0")
	c.denied(c.box(), "core_limit_set_old 0")
	if out := c.suite.outside(c, "core_limit_set 0"); out.Outcome != "succeeded" {
		c.Errorf("not tested: %s outside", say(out))
	}
	if os.Getenv("COVE_ADVERSARY_ALONE") == "" {
		c.remark("the handler itself is tried where the machine is the suite's alone (COVE_ADVERSARY_ALONE=1)")
		return
	}
	c.tryHandler()
}

// tryHandler sets a handler that leaves a mark, for a moment. Nobody else may be on this machine.
func (c *trial) tryHandler() {
	const setting = "/proc/sys/kernel/core_pattern"
	dir := c.TempDir()
	mark := filepath.Join(dir, "mark")
	script := filepath.Join(dir, "handler")
	must(c, os.WriteFile(script, []byte("#!/bin/sh\n/bin/cat >/dev/null\necho crashed >> "+mark+"\n"), 0o755))
	was, err := os.ReadFile(setting)
	must(c, err)
	must(c, os.WriteFile(setting, []byte("|"+script), 0))
	defer os.WriteFile(setting, was, 0)
	b := c.fresh(boxOptions{})
	b.run(c, spec("abort /work"))
	time.Sleep(500 * time.Millisecond)
	if _, err := os.Stat(mark); err == nil {
		c.Error("HOLE: the host's crash handler ran for a sandbox's process")
	}
	c.suite.outside(c, "abort /tmp")
	if !eventually(patience, func() bool { _, err := os.Stat(mark); return err == nil }) {
		c.Error("not tested: the handler does not run outside either")
	}
}

// census counts what the suite's own process has open, and what the machine has that belongs to sandboxes.
type census struct {
	fds, goroutines, children int
	cgroups, mounts           []string
}

// steadyCensus is a census that two looks agree on: an engine that keeps
// sandboxes ready refills them a moment after one was taken.
func (c *trial) steadyCensus() census {
	now := c.census()
	eventually(10*time.Second, func() bool {
		was := now
		time.Sleep(300 * time.Millisecond)
		now = c.census()
		return now.fds == was.fds && now.goroutines == was.goroutines && now.children == was.children &&
			len(now.cgroups) == len(was.cgroups)
	})
	return now
}

func (c *trial) census() census {
	runtime.GC()
	fds, _ := os.ReadDir("/proc/self/fd")
	mountinfo, _ := os.ReadFile("/proc/self/mountinfo")
	n := census{fds: len(fds), goroutines: runtime.NumGoroutine(), mounts: strings.Split(string(mountinfo), "\n")}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		n.children += len(strings.Fields(string(b)))
	}
	t := c.suite.parentGroups
	for _, dir := range t {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				n.cgroups = append(n.cgroups, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(n.cgroups)
	return n
}
