package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/engine"
)

// privilegeRows are attempts to become somebody else, or to hold on to a right (K5, K8, C6).
func privilegeRows() []row {
	return []row{
		{id: "K5.setuid_program", invariant: "H3", what: "become root by a setuid-root program in the image",
			test: setuidProgram},
		{id: "K5.file_capabilities", invariant: "H3", what: "gain a capability by a program that has it in the image",
			test: capableProgram},
		{id: "K5.setuid_files", invariant: "H3", what: "find a setuid program on a mount that honours it", test: setuidFiles},
		{id: "K5.su", invariant: "H3", what: "become root by the image's own su", test: suProgram},
		{id: "K5.set_ids", invariant: "H3", what: "become root, who is mapped inside, by asking",
			attempts: []string{"setuid", "setgid", "setfsuid", "setresuid", "setresgid", "setgroups"},
			inside:   []string{"ids"}, deny: unmapped},
		{id: "K5.no_new_privs", invariant: "H3", what: "take no_new_privs back", inside: []string{"prctl 38 1 0 0 0"},
			test: func(c *trial) {
				c.row.deny = []string{"EINVAL", "EPERM"}
				c.denied(c.box(), "no_new_privs_0")
				c.denied(c.box(), "prctl 0x100000026 0 0 0 0")
			}},
		{id: "K5.xattr_capability", invariant: "H3", what: "give a file of one's own a capability",
			attempts: []string{"file_capability", "xattr_trusted"}, deny: append([]string{"EOPNOTSUPP"}, denied...),
			inside: []string{"create /work"}},
		{id: "K5.chown", invariant: "H1", what: "give a file away to root", attempts: []string{"chown_root"},
			inside: []string{"create /work"}, deny: unmapped},
		{id: "K8.capset", invariant: "H3", what: "raise a capability", attempts: []string{"capset", "securebits"},
			inside: []string{"ids"},
			test:   func(c *trial) { c.denied(c.box(), "ambient") }},
		{id: "K8.prctl", invariant: "H3",
			what: "prctl options that reach beyond the process: its memory map, its tracer, page merging, speculation",
			attempts: []string{"prctl 35 1 4096 0 0", "prctl 0x59616d61 1 0 0 0", "prctl 67 1 0 0 0",
				"prctl 0x100000023 1 4096 0 0"},
			deny: append([]string{"EINVAL"}, denied...), inside: []string{"prctl 3 0 0 0 0", "prctl 30 0 0 0 0"}},
		{id: "K8.rlimits", alone: true, invariant: "H4",
			what:     "raise a hard limit: descriptors, locked memory, core size, priorities",
			attempts: []string{"rlimit_raise 7", "rlimit_raise 4", "rlimit_raise 13", "rlimit_raise 14"},
			deny:     append([]string{"UNCHANGED"}, denied...), inside: []string{"getpid"}},
		{id: "K8.limit_of_init", invariant: "H1", what: "change limits or the processor of PID 1",
			inside: []string{"getpid"}, test: limitsOfInit},
		{id: "C6.nice", invariant: "H4", what: "run before everybody else", attempts: []string{"nice -20", "nice -1"},
			inside: []string{"nice 19"}},
		{id: "C6.realtime", invariant: "H4", what: "run in real time",
			attempts: []string{"sched_fifo", "sched_deadline", "ioprio_rt"}, inside: []string{"nice 19"}},
		{id: "C4.oom_score", alone: true, invariant: "H4", what: "be the last that is killed for memory",
			attempts: []string{"oom_score"}, inside: []string{"getpid"}},
	}
}

// plantedImage is a rootfs of the suite's own: a small tree with the probe program, and whatever plant puts into it.
func (c *trial) plantedImage(plant func(root string)) engine.Rootfs {
	c.Helper()
	root, err := os.MkdirTemp("", "image")
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		c.Fatal(err)
	}
	for _, dir := range []string{"bin", "etc", "usr/bin", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			c.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "bin/probe"), c.suite.probe, 0o755); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o644); err != nil {
		c.Fatal(err)
	}
	if plant != nil {
		plant(root)
	}
	return engine.Rootfs{Kind: engine.RootfsDir, Dir: root}
}

// imageBox is a sandbox of a planted image; an engine that has none is not attacked by it.
func (c *trial) imageBox(plant func(root string)) *box {
	c.Helper()
	rootfs := c.plantedImage(plant)
	return c.fresh(boxOptions{rootfs: &rootfs})
}

// setuidProgram executes a copy of the probe with the setuid bit, owned by
// root. The control executes it outside, where it works.
func setuidProgram(c *trial) {
	if !asRoot() {
		c.lacking("only root can make a setuid-root program")
	}
	b := c.imageBox(func(root string) {
		path := filepath.Join(root, "bin/suid")
		must(c, os.WriteFile(path, c.suite.probe, 0o755))
		must(c, os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid))
	})
	in := c.works(b, "exec_ids /bin/suid")
	if strings.Contains(field(in.Detail, "Uid"), "0") && strings.Contains(" "+field(in.Detail, "Uid")+" ", " 0 ") {
		c.Errorf("HOLE: a setuid program became %s", in.Detail)
	}
	if !strings.Contains(in.Detail, "NoNewPrivs: 1") {
		c.Errorf("HOLE: %s", in.Detail)
	}
	planted := filepath.Join(filepath.Dir(c.suite.path), "suid-"+token())
	must(c, os.WriteFile(planted, c.suite.probe, 0o755))
	defer os.Remove(planted)
	must(c, os.Chmod(planted, 0o755|os.ModeSetuid))
	out := c.suite.unconfined(c, "exec_ids "+planted, asNobody)
	if !strings.Contains(" "+field(out.Detail, "Uid")+" ", " 0 ") {
		c.Errorf("not tested: the setuid bit does nothing outside either: %s", say(out))
	}
}

// field is the value after KEY in what "ids" printed.
func field(detail, key string) string {
	_, rest, _ := strings.Cut(detail, key+": ")
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func must(c *trial, err error) {
	c.Helper()
	if err != nil {
		c.Fatal("not tested: ", err)
	}
}

// netRawCapability is a security.capability attribute: VFS_CAP_REVISION_2, effective, CAP_NET_RAW.
var netRawCapability = []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func capableProgram(c *trial) {
	if !asRoot() {
		c.lacking("only root can give a program a capability")
	}
	b := c.imageBox(func(root string) {
		path := filepath.Join(root, "bin/capable")
		must(c, os.WriteFile(path, c.suite.probe, 0o755))
		must(c, unix.Setxattr(path, "security.capability", netRawCapability, 0))
	})
	in := c.works(b, "exec_ids /bin/capable")
	if strings.Trim(field(in.Detail, "CapEff"), "0") != "" || strings.Trim(field(in.Detail, "CapPrm"), "0") != "" {
		c.Errorf("HOLE: a program with file capabilities got %s", in.Detail)
	}
	planted := filepath.Join(filepath.Dir(c.suite.path), "capable-"+token())
	must(c, os.WriteFile(planted, c.suite.probe, 0o755))
	defer os.Remove(planted)
	must(c, unix.Setxattr(planted, "security.capability", netRawCapability, 0))
	out := c.suite.unconfined(c, "exec_ids "+planted, asNobody)
	if strings.Trim(field(out.Detail, "CapEff"), "0") == "" {
		c.Errorf("not tested: the capability does nothing outside either: %s", say(out))
	}
}

// setuidFiles walks the sandbox. The control: the walk sees the image's setuid
// programs, which are there and have no effect.
func setuidFiles(c *trial) {
	if !c.suite.caps.MountFlags {
		c.lacking("only no_new_privs, as K5.setuid_program shows: %s", c.suite.caps.Missing["mount_flags"])
	}
	if !asRoot() {
		c.lacking("only root can plant a setuid program for the control")
	}
	r := c.works(c.imageBox(func(root string) {
		path := filepath.Join(root, "bin/suid")
		must(c, os.WriteFile(path, c.suite.probe, 0o755))
		must(c, os.Chmod(path, 0o755|os.ModeSetuid))
	}), "setuid_files")
	if r.Count == 0 {
		c.Error("not tested: the planted setuid program was not seen")
	}
	for _, b := range []*box{c.box()} {
		r.Lines = append(r.Lines, c.works(b, "setuid_files").Lines...)
	}
	for _, path := range r.Lines {
		c.Errorf("HOLE: %s is setuid and its mount honours that", path)
	}
}

// suProgram runs the root filesystem's own su and looks at it from the host while it waits for a password.
func suProgram(c *trial) {
	t := c.occupied(boxOptions{})
	s := spec("su")
	s.Args, s.TTY, s.Rows, s.Cols = []string{"/bin/su", "-c", "id " + t.word}, true, 24, 80
	ctx := c.Context()
	p, err := t.sandbox.Guest().Start(ctx, s)
	if err != nil {
		c.lacking("this image has no su: %v", err)
	}
	go func() { // what it asks for
		b := make([]byte, 1024)
		for {
			if _, err := p.Stdout().Read(b); err != nil {
				return
			}
		}
	}()
	seen := 0
	eventually(patience, func() bool {
		for _, pid := range marked("id " + t.word) {
			if p, ok := readProcess(pid); ok {
				seen++
				c.postureOf(t, p, "su")
			}
		}
		select {
		case <-p.Exited():
			return true
		default:
			return seen > 3
		}
	})
	p.Signal(ctx, 9)
	if exit, err := p.Wait(ctx); err == nil && exit.Code == 0 {
		c.Errorf("HOLE: su became root without a password")
	}
	c.remark("seen %s", fmt.Sprint(seen))
}

func limitsOfInit(c *trial) {
	if !c.suite.caps.UserIDs {
		c.lacking("the guest and the programs have one id: %s", c.suite.caps.Missing["user_ids"])
	}
	c.refused(c.box(), "prlimit_init")
	c.refused(c.box(), "affinity_init")
}
