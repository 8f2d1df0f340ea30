package adversary

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// namespaceRows are attempts to make or enter a namespace (K4) and to change what is mounted (P3).
func namespaceRows() []row {
	rows := []row{}
	for _, n := range []struct {
		name  string
		flag  int
		clone bool
	}{
		{"user", 0x10000000, true}, {"mnt", 0x20000, true}, {"pid", 0x20000000, true}, {"net", 0x40000000, true},
		{"ipc", 0x08000000, true}, {"uts", 0x04000000, true}, {"cgroup", 0x02000000, true}, {"time", 0x80, false},
	} {
		r := row{id: "K4.new_" + n.name, invariant: "H3", what: "make a " + n.name + " namespace",
			attempts: []string{fmt.Sprintf("unshare %#x", n.flag), fmt.Sprintf("unshare %#x", n.flag|1<<32),
				fmt.Sprintf("clone3 %#x", n.flag)},
			inside: []string{"fork"}}
		if n.clone {
			r.attempts = append(r.attempts, fmt.Sprintf("clone %#x", n.flag), fmt.Sprintf("clone %#x", n.flag|1<<32))
		}
		rows = append(rows, r)
	}
	for _, kind := range namespaceKinds {
		rows = append(rows, row{id: "K4.enter_" + kind, invariant: "H3", what: "enter PID 1's " + kind + " namespace",
			deny: hidden, test: func(c *trial) { c.enter(kind) }})
	}
	return append(rows,
		row{id: "K4.enter_pidfd", invariant: "H3", what: "enter PID 1's namespaces by a pidfd",
			attempts: []string{"setns_pidfd"}, inside: []string{"fork"}},
		row{id: "K4.deep", invariant: "H3", what: "mount inside a user namespace of one's own",
			attempts: []string{"unshare_deep"}, inside: []string{"fork"}},
		row{id: "K4.flag_sweep", invariant: "H3", what: "find one namespace flag, with high bits too, that comes through",
			test: flagSweep},
		row{id: "K4.uid_map", invariant: "H1", what: "map more ids", attempts: []string{"open_write /proc/1/uid_map"},
			deny: hidden, inside: []string{"read /proc/self/uid_map"}},
		row{id: "K4.names", invariant: "H3", what: "change the host's name",
			attempts: []string{"sethostname", "setdomainname"}, inside: []string{"getpid"}},
		row{id: "P3.mount", invariant: "H3", what: "mount a file system", inside: []string{"getpid"},
			attempts: []string{"mount_tmpfs", "mount_proc", "mount_sysfs", "mount_cgroup2", "mount_overlay", "mount_bind /etc"}},
		row{id: "P3.mount_cgroup", invariant: "H3",
			what:   "mount control groups of version 1, whose release agent runs on the host",
			inside: []string{"getpid"}, test: mountCgroup},
		row{id: "P3.remount", invariant: "H3", what: "make a read-only place writable", inside: []string{"getpid"},
			attempts: []string{"remount_rw /", "remount_rw /proc", "remount_rw /proc/sys", "remount_rw /sys",
				"remount_rw /usr"}},
		row{id: "P3.unmask", invariant: "H3", what: "take a mask away", inside: []string{"getpid"},
			attempts: []string{"umount /proc", "umount /sys", "umount /dev", "umount /proc/sys", "mount_bind /proc"}},
		row{id: "P3.new_mount_api", invariant: "H3", what: "mount by the newer calls", inside: []string{"getpid"},
			attempts: []string{"fsopen", "fsconfig", "fsmount", "fspick", "open_tree", "move_mount", "mount_setattr",
				"open_tree_attr"}},
		row{id: "P3.chroot", invariant: "H3", what: "leave through chroot", inside: []string{"getpid"},
			attempts: []string{"chroot", "chroot_escape", "pivot_root"}},
	)
}

// enter tries PID 1's namespace by its name, and the attacker's own, whose name nothing hides. The control enters one's
// own outside: the kernel then answers with success, or with EINVAL where one is in it already.
func (c *trial) enter(kind string) {
	c.Helper()
	c.denied(c.box(), "setns 1 "+kind)
	c.row.deny = denied
	c.denied(c.box(), "setns self "+kind)
	if out := c.suite.outside(c, "setns self "+kind); out.Outcome == outcome.Refused && out.Errno != "EINVAL" {
		c.Errorf("not tested: refused without a sandbox too: %s", say(out))
	}
}

// mountCgroup makes a hierarchy, which the kernel allows in the first control
// group namespace only (kernel/cgroup/cgroup-v1.c), so the control is in it.
func mountCgroup(c *trial) {
	c.denied(c.box(), "mount_cgroup")
	out := c.suite.unconfined(c, "mount_cgroup",
		func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWCGROUP })
	switch {
	case out.Outcome == outcome.Succeeded:
	case out.Errno == "ENODEV" || !allCapable():
		c.lacking("refused, but without a sandbox too: %s", say(out))
	default:
		c.Errorf("not tested: refused without a sandbox too: %s", say(out))
	}
}

// flagSweep needs no control of its own: K4.new_* have them.
func flagSweep(c *trial) {
	r := c.denied(c.box(), "clone_sweep")
	if len(r.Lines) > 0 {
		c.Errorf("HOLE: %s", strings.Join(r.Lines, "; "))
	}
	if out := c.suite.outside(c, "clone_sweep"); len(out.Lines) == 0 {
		c.Errorf("not tested: no flag comes through outside either")
	}
}
