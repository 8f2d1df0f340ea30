package adversary

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// The tests of rows C7: tables that the kernel keeps for a process, a user, or the whole machine.

func descriptorLimit(c *trial) {
	b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.OpenFiles = 100 }})
	for _, kind := range []string{"file", "socket", "pipe", "event", "epoll"} {
		r := b.try(c, "open_many "+kind+" 5000")
		if r.Errno != "EMFILE" || r.Count > 100 {
			c.Errorf("HOLE: %d of kind %s: %s", r.Count, kind, say(r))
		}
		if r.Count < 20 {
			c.Errorf("not tested: %d of kind %s", r.Count, kind)
		}
	}
	c.row.deny = denied
	c.denied(b, "rlimit_raise 7")
}

// terminalLimit opens terminals in two processes, each of which has more descriptors than a sandbox has terminals. The
// oracle is the host's count of the whole machine's.
func terminalLimit(c *trial) {
	if !c.suite.caps.MountFlags {
		c.lacking("the container engine mounts /dev/pts without a limit: %s", c.suite.caps.Missing["mount_flags"])
	}
	opened := func() int64 {
		b, err := os.ReadFile("/proc/sys/kernel/pty/nr")
		must(c, err)
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		must(c, err)
		return n
	}
	before := opened()
	attacker, neighbour := c.crowded(func(l *cove.Limits) { l.OpenFiles = 1024 })
	first := attacker.box.held(c, "open_many pty 500 hold", "open_many")
	second := attacker.box.held(c, "open_many pty 500 hold", "open_many")
	if all := opened() - before; all > rootfs.Terminals+8 { // other tests of the machine have some, too
		c.Errorf("HOLE: %d terminals are open", all)
	} else if all < rootfs.Terminals/2 {
		c.Errorf("not tested: %d terminals are open", all)
	}
	if r := onTerminal(c, neighbour, "tty_size"); r.Outcome != outcome.Succeeded {
		c.Errorf("HOLE: the neighbour gets no terminal: %s", say(r))
	}
	r, other := first().result, second().result
	if r.Errno != "ENOSPC" || other.Errno != "ENOSPC" || r.Count+other.Count > rootfs.Terminals {
		c.Errorf("HOLE: %d and %d terminals: %s, %s", r.Count, other.Count, say(r), say(other))
	}
	// The control: the same without a sandbox.
	if out := c.suite.outside(c, "open_many pty 500"); out.Count < 2*rootfs.Terminals {
		c.Errorf("not tested: %d terminals without a sandbox: %s", out.Count, say(out))
	}
	if r := onTerminal(c, attacker.box, "tty_size"); r.Outcome != outcome.Succeeded {
		c.Errorf("terminals that were closed do not come back: %s", say(r))
	}
	c.unharmed(attacker, neighbour)
}

// ownAccounts keeps others of these tests, which run beside this one for other engines, from what the kernel counts for
// this user.
func (c *trial) ownAccounts() {
	c.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/tmp/cove-test-accounts-%d", os.Geteuid()), os.O_CREATE|os.O_RDWR, 0o600)
	must(c, err)
	c.Cleanup(func() { f.Close() })
	must(c, unix.Flock(int(f.Fd()), unix.LOCK_EX))
}

// userAccounts takes all that it gets of things that the kernel counts for a user and for no group, and counts how many
// a neighbour gets meanwhile, and the user who makes the sandboxes.
func userAccounts(c *trial) {
	c.ownAccounts()
	lasting := boxOptions{user: cove.AgentUser, limits: func(l *cove.Limits) { l.OpenFiles = 1024 }}
	for _, kind := range []string{"watch", "queue", "timer", "signal"} {
		attempt := "open_many " + kind + " 100000"
		alone := c.suite.outside(c, attempt).Count // the control, too
		one, other := c.fresh(lasting), c.fresh(lasting)
		finish := one.held(c, attempt+" hold", "open_many")
		outside, neighbour := c.suite.outside(c, attempt).Count, other.try(c, attempt).Count
		held := finish().result.Count
		if alone < 4 || held < alone/4 {
			c.Errorf("not tested: %d of kind %s outside, %d inside", alone, kind, held)
		}
		least := alone / 4
		if c.suite.caps.HostIDRange {
			least = alone * 3 / 4
			if neighbour < held {
				c.Errorf("HOLE: a neighbour gets %d of kind %s, %d are held", neighbour, kind, held)
			}
		}
		if outside < least {
			c.Errorf("HOLE: the user of the host gets %d of kind %s, not %d: %d are held", outside, kind, alone, held)
		}
		c.remark("%s: %d held, %d of %d outside, %d in a neighbour", kind, held, outside, alone, neighbour)
	}
}

// signalsTaken binds a sandbox while the user of the host has all pending signals that the kernel keeps for a user, and
// has none any more after a moment. A container engine's guest may be that user, and waits then.
func signalsTaken(c *trial) {
	c.ownAccounts()
	const moment = time.Second
	finish := func() {}
	var began time.Time
	b := c.fresh(boxOptions{bare: true, unbound: func() {
		finish = c.suite.heldOutside(c, "open_many signal 1000000 hold", "open_many")
		began = time.Now()
		time.AfterFunc(moment, finish)
	}})
	took := time.Since(began)
	if root := os.Geteuid() == 0; root && !c.suite.caps.UserNamespace && took < moment {
		c.Errorf("not tested: it took %v, and the guest is the host's root", took)
	}
	if !b.alive() {
		c.Error("it has ended")
	}
	c.remark("bound in %v", took.Round(time.Millisecond))
}

// pipeRoom makes wide pipes until the kernel has no more room for those of a user (fs.pipe-user-pages-soft). The
// control is the sandbox's own second attempt, which gets none.
func pipeRoom(c *trial) {
	one, other := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	const attempt = "open_many wide 120"
	finish := one.held(c, attempt+" hold", "open_many")
	again, neighbour := one.try(c, attempt), other.try(c, attempt)
	r := finish().result
	if r.Errno != "EPERM" || r.Count == 0 || again.Count >= r.Count {
		c.Errorf("not tested: %d wide pipes, and then %d: %s", r.Count, again.Count, say(r))
	}
	if neighbour.Count < r.Count {
		if c.suite.caps.HostIDRange {
			c.Errorf("HOLE: a neighbour gets %d wide pipes, %d are held", neighbour.Count, r.Count)
		}
		c.remark("sandboxes of a user share the room")
	}
	c.works(other, "open_many pipe 20") // the kernel gives each user a pipe of two pages at least
	c.remark("%d held, %d in a neighbour", r.Count, neighbour.Count)
}

// trackedConnections makes connections inside, while the kernel's memory for tracked ones is looked at, of all network
// namespaces together. The control tracks those of a namespace of its own.
func trackedConnections(c *trial) {
	const many = 2000
	counted := func(slabs []byte) int64 {
		for line := range strings.Lines(string(slabs)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "nf_conntrack" {
				n, err := strconv.ParseInt(f[1], 10, 64)
				must(c, err)
				return n
			}
		}
		c.lacking("this kernel tracks no connections")
		return 0
	}
	tracked := func() int64 {
		slabs, err := os.ReadFile("/proc/slabinfo")
		if err != nil {
			c.lacking("only root is told how many connections are tracked")
		}
		return counted(slabs)
	}
	before := tracked()
	c.works(c.fresh(boxOptions{}), fmt.Sprintf("tcp_many %d", many))
	if grown := tracked() - before; grown > many/4 {
		c.Errorf("HOLE: %d connections are tracked", grown)
	}
	script := fmt.Sprintf("ip link set lo up && iptables -A INPUT -m conntrack --ctstate NEW -j ACCEPT && "+
		"%s tcp_many %d && cat /proc/slabinfo", c.suite.path, many)
	out, err := exec.CommandContext(c.Context(), "unshare", "--net", "sh", "-c", script).Output()
	if err != nil {
		c.remark("no control: connections cannot be tracked here: %v", err)
		return
	}
	if seen := counted(out) - before; seen < many/4 { // before their namespace has gone
		c.Errorf("not tested: where connections are tracked, %d of %d are seen", seen, many)
	}
}

// fileLocks takes locks without end, in every form that the kernel could not tell whose they are, too.
func fileLocks(c *trial) {
	c.row.deny = denied
	for _, attempt := range []string{"lock_ofd", "share_files"} {
		c.refused(c.box(), attempt)
	}
	const some, many = local.MaxLocks * 4 / 5, 6 * local.MaxLocks
	neighbour := c.fresh(boxOptions{})
	keeps := neighbour.held(c, fmt.Sprintf("lock_many %d", some), "lock_many")
	attacker := c.fresh(boxOptions{})
	attacker.held(c, fmt.Sprintf("lock_many %d", many), "lock_many")
	if !eventually(patience, func() bool { return !attacker.alive() }) {
		c.Errorf("HOLE: a sandbox holds %d locks", many)
	} else if s := attacker.stats(c); s.Locks <= some || s.MemoryPeak > attacker.limits.Memory {
		c.Errorf("the sandbox was ended without a word of its locks: %+v", s)
	}
	if !neighbour.alive() {
		c.Errorf("HOLE: a neighbour with %d locks was ended with it", some)
	}
	if r := keeps().result; r.Outcome != outcome.Succeeded || r.Count != some {
		c.Errorf("not tested: %d locks are not allowed: %s", some, say(r))
	}
	finish := c.suite.heldOutside(c, fmt.Sprintf("lock_many %d", many), fmt.Sprintf(`"count":%d`, many))
	defer finish()
	c.remark("%d locks are ended, %d are not, and without a sandbox %d are held", many, some, many)
}

// ownFilters puts filters on as many threads as there may be, whose code the kernel has in memory of the whole machine.
func ownFilters(c *trial) {
	c.row.deny = append([]string{"EINVAL"}, denied...)
	c.denied(c.fresh(boxOptions{}), "filter_many")
	out := c.suite.outside(c, "filter_many")
	if out.Outcome != outcome.Succeeded || out.Count == 0 {
		c.Errorf("not tested: a program without a sandbox gets no filter of its own: %s", say(out))
	}
	c.works(c.fresh(boxOptions{user: cove.AgentUser}), "filter_many")
	c.remark("agents get filters of their own, %d on a thread", out.Count)
}

// passedDescriptors leaves descriptors on their way until the kernel refuses more, which it counts for a user. As many
// as common programs may have open are left for those of the host's user.
func passedDescriptors(c *trial) {
	c.ownAccounts()
	const common = 1024 // the soft limit of a login
	bounds := runtime.Bounds{}
	if !c.suite.caps.HostIDRange {
		bounds = bounds.ForUser()
	}
	l, err := bounds.Resolve(runtime.Runtime{}, cove.Limits{})
	must(c, err)
	b := c.fresh(boxOptions{limits: func(to *cove.Limits) { to.OpenFiles = l.OpenFiles }})
	finish := b.held(c, "pass_many 10000 hold", "pass_many")
	out := c.suite.unconfined(c, "pass_many 253", func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, common)}, cmd.Args...)
		cmd.Path = "/bin/sh"
	})
	if os.Geteuid() != 0 && out.Count != 253 { // root passes as many as it likes
		c.Errorf("HOLE: a program of the host's user passes none: %s", say(out))
	}
	in := finish().result
	if in.Errno != "ETOOMANYREFS" || in.Count < 253 {
		c.Errorf("not tested: %d on their way: %s", in.Count, say(in))
	}
	c.remark("%d on their way", in.Count)
}

// fileTable opens descriptors in as many processes as there may be. The
// product of both limits is what the host's table has to bear.
func fileTable(c *trial) {
	most := int64(0)
	if b, err := os.ReadFile("/proc/sys/fs/file-max"); err == nil {
		most, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	l := c.suite.limits()
	if most > 0 && l.OpenFiles*l.PIDs > most/2 {
		c.Errorf("HOLE: %d descriptors in %d processes are half of what the host has (%d)", l.OpenFiles, l.PIDs, most)
	}
	b := c.fresh(boxOptions{})
	r := b.try(c, "open_many file 100000")
	if r.Errno != "EMFILE" || r.Count > l.OpenFiles {
		c.Errorf("HOLE: %s after %d", say(r), r.Count)
	}
	c.remark("%d for each of %d processes, %d on the host", r.Count, l.PIDs, most)
}
