package adversary

import (
	"os"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
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

// userAccounts takes all that it gets of things that the kernel counts for a user and for no group, and counts how many
// a neighbour gets meanwhile, and the user who makes the sandboxes.
func userAccounts(c *trial) {
	lasting := boxOptions{user: cove.AgentUser, limits: func(l *cove.Limits) { l.OpenFiles = 1024 }}
	for _, kind := range []string{"watch", "queue", "signal"} {
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
