package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// rootMay are rows of what root inside may do, each with the reason, or the row that has the rest of it.
var rootMay = map[string]string{
	"K3.memfd_create":      "agents may",
	"K3.sweep_native":      "R1.sweep",
	"P3.chroot":            "R1.chroot",
	"K5.setuid_program":    "R1.programs",
	"K5.file_capabilities": "R1.programs",
	"K5.setuid_files":      "R1.programs",
	"K5.su":                "root needs no su",
	"K5.set_ids":           "its programs have users of their own",
	"K5.xattr_capability":  "R1.programs",
	"K5.chown":             "files have owners",
	"K8.capset":            "R1.capset",
	"K8.limit_of_init":     "PID 1 belongs to its sandbox",
	"F1.shadow":            "an image has its own",
	"F1.accounts":          "an image has its own",
	"F3.write_root":        "R2.overlay",
	"F3.writable":          "C5.bytes fills the root, too",
	"F6.deputy_write":      "R2.overlay",
	"F6.deputy_remove":     "R2.overlay",
	"C7.filters":           "agents may",
}

// rootRows are those about root inside: everything in which a user might do better who has capabilities, and its own.
func rootRows() []row {
	rows := slices.Concat(kernelRows(), socketRows(), namespaceRows(), privilegeRows(), fileRows(), procRows(),
		terminalRows(), guestRows(), imageRows(), mountRows(), sharedRows(), overlayRows(), neighbourRows(), networkRows(),
		processRows(), exhaustionRows())
	rows = slices.DeleteFunc(rows, func(r row) bool { return rootMay[r.id] != "" })
	return append(rows,
		row{id: "R1.programs", invariant: "H10", what: "have more rights than root inside, by a program",
			test: rootPrograms},
		row{id: "R1.sweep", invariant: "H10", what: "reach a dangerous call as root inside", test: func(c *trial) {
			never := neverCalls()
			delete(never, "chroot")
			sweep(c, never)
		}},
		row{id: "R1.chroot", invariant: "H10", what: "leave through chroot, which root inside may", test: rootChroot},
		row{id: "R1.capset", invariant: "H10", alone: true, what: "raise a capability that root inside has not",
			attempts: []string{"capset"}, inside: []string{"securebits"},
			test: func(c *trial) { c.denied(c.box(), "ambient") }},
		row{id: "R2.overlay", invariant: "H10", what: "reach through the overlay: write into the image, or read beyond it",
			test: rootOverlay},
		row{id: "R3.mount", invariant: "H10", what: "leave setuid files or capabilities in a mounted directory",
			test: rootMounted},
		row{id: "R3.others", invariant: "H10", what: "read what another user of the host has in a mounted directory",
			test: rootOthers},
	)
}

// rootCapabilities is written down here a second time, apart from those that Cove gives: CHOWN, DAC_OVERRIDE, FOWNER,
// FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, SYS_CHROOT and SETFCAP.
const rootCapabilities = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<18 | 1<<31

// rootMount reports a fault of the table of mounts that root inside makes none: programs of its root may be setuid, and
// its home is where it is.
func rootMount(line, fault string) bool {
	fields := strings.Fields(line)
	return fault == "no nosuid" && fields[4] == "/" || fault == "writable" && fields[4] == cove.RootUser.Home
}

// capabilities are a set that "ids" printed.
func capabilities(c *trial, detail, set string) uint64 {
	c.Helper()
	n, err := strconv.ParseUint(field(detail, set), 16, 64)
	if err != nil {
		c.Errorf("not tested: no %s in %q", set, detail)
	}
	return n
}

// rootPrograms compares what programs become with what root inside may be. The controls execute the same files
// outside.
func rootPrograms(c *trial) {
	if !asRoot() {
		c.lacking("only root can give a program a capability")
	}
	suid := func(path string) {
		must(c, os.WriteFile(path, c.suite.probe, 0o755))
		must(c, os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid))
	}
	capable := func(path string) {
		must(c, os.WriteFile(path, c.suite.probe, 0o755))
		must(c, unix.Setxattr(path, "security.capability", netRawCapability, 0))
	}
	b := c.imageBox(func(root string) {
		suid(filepath.Join(root, "bin/suid"))
		capable(filepath.Join(root, "bin/capable"))
	})
	all := uint64(rootCapabilities)
	bounded := func(who, detail string) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if more := capabilities(c, detail, set) &^ all; more != 0 {
				c.Errorf("HOLE: %s has %#x in %s", who, more, set)
			}
		}
		if field(detail, "Seccomp") != "2" {
			c.Errorf("HOLE: %s has no filter: %s", who, detail)
		}
	}
	identity := func(attempt string) string { return strings.ReplaceAll(c.works(b, attempt).Detail, `\"`, `"`) }
	root := identity("exec_ids /bin/probe")
	bounded("root", root)
	if capabilities(c, root, "CapEff") != all {
		c.Errorf("not tested: root has not all that it should have: %s", root)
	}
	user := identity("as 1000 ids")
	bounded("a user", user)
	if capabilities(c, user, "CapPrm") != 0 {
		c.Errorf("HOLE: a user inside has %s", user)
	}
	became := identity("as 1000 exec_ids /bin/suid")
	bounded("a setuid program", became)
	if !strings.Contains(became, `Uid: 1000 0 0 0`) {
		c.Errorf("not tested: the setuid program became %s", became)
	}
	for _, who := range []string{"", "as 1000 "} { // of a capability beyond the bounding set, nothing is started
		if r := b.try(c, who+"exec_ids /bin/capable"); !strings.Contains(r.Detail, "operation not permitted") {
			c.Errorf("HOLE: a program with file capabilities is %s", say(r))
		}
	}
	for i, plant := range []func(string){suid, capable} {
		path := filepath.Join(filepath.Dir(c.suite.path), fmt.Sprintf("planted-%d-%s", i, token()))
		defer os.Remove(path)
		plant(path)
		if out := c.suite.unconfined(c, "exec_ids "+path, asNobody); strings.Trim(field(out.Detail, "CapEff"), "0") == "" {
			c.Errorf("not tested: it has no right outside either: %s", say(out))
		}
	}
}

// rootChroot looks for a file of the host. The control finds it outside.
func rootChroot(c *trial) {
	file := filepath.Join(c.TempDir(), token())
	must(c, os.WriteFile(file, []byte("the host's"), 0o644))
	c.row.deny = hidden
	b := c.fresh(boxOptions{})
	c.works(b, "write /work/own x")
	if r := b.run(c, spec("chroot_reach "+file)).result; r.Errno != "ENOENT" {
		c.Errorf("HOLE: %s", say(r))
	}
	if r := b.run(c, spec("chroot_reach /work/own")).result; r.Outcome != "succeeded" {
		c.Errorf("not tested: the escape leads to the sandbox's own root: %s", say(r))
	}
	if r := c.suite.outside(c, "chroot_reach "+file); r.Detail != "the host's" {
		c.Errorf("not tested: the file is not found outside: %s", say(r))
	}
}

// rootOverlay changes all that there is of the image, and forges what an overlay keeps of changes. The image and a
// neighbour are the oracles.
func rootOverlay(c *trial) {
	secret := filepath.Join(c.TempDir(), token())
	must(c, os.WriteFile(secret, []byte("the host's"), 0o644))
	image := c.plantedImage(func(root string) {
		must(c, os.MkdirAll(filepath.Join(root, "shared/below"), 0o755))
		for _, name := range []string{"file", "below/file"} {
			must(c, os.WriteFile(filepath.Join(root, "shared", name), []byte("of the image"), 0o644))
		}
	})
	before := treeOf(image.Dir)
	b, neighbour := c.fresh(boxOptions{rootfs: &image}), c.fresh(boxOptions{rootfs: &image})
	c.works(b, "write /shared/file changed")
	c.works(b, "write /shared/below/new x")
	for _, prefix := range []string{"user.overlay.", "trusted.overlay."} {
		for name, value := range map[string]string{"opaque": "y", "redirect": filepath.Dir(secret), "metacopy": "",
			"origin": "x", "upper": "x", "whiteout": "", "protattr": "s"} {
			for _, place := range []string{"/shared", "/shared/below", "/shared/file"} {
				b.try(c, strings.TrimSpace("xattr "+place+" "+prefix+name+" "+value))
			}
		}
	}
	c.row.deny = append([]string{"EINVAL"}, denied...)
	c.denied(b, "mknod c 0 0") // a whiteout
	for _, place := range []string{"/shared", "/shared/below"} {
		if r := b.try(c, "read "+place+"/"+filepath.Base(secret)); r.Outcome == "succeeded" {
			c.Errorf("HOLE: the overlay was redirected: %s", say(r))
		}
	}
	if r := c.works(b, "read /shared/file"); !strings.Contains(say(r), "changed") {
		c.Errorf("not tested: nothing was changed inside: %s", say(r))
	}
	if r := c.works(neighbour, "read /shared/file"); !strings.Contains(say(r), "of the image") {
		c.Errorf("HOLE: a neighbour has %s", say(r))
	}
	if after := treeOf(image.Dir); before != after {
		c.Errorf("HOLE: the image was\n%sand is\n%s", before, after)
	}
}

// rootMounted looks for rights that a file in a directory of the host would give to who runs it there.
func rootMounted(c *trial) {
	for _, owner := range []int{0, 1234} {
		dir := c.mountable(owner)
		b := c.mounted(dir, false)
		c.works(b, "write /workspace/file x")
		c.row.deny = append([]string{"EINVAL", "EOPNOTSUPP", "EOVERFLOW", "UNCHANGED"}, denied...)
		c.denied(b, "file_capability /workspace/file")
		c.denied(b, "chmod_suid 04755 /workspace")
		if left := treeOf(dir); strings.Contains(left, "security.capability") || strings.Contains(left, " mode 1047") {
			c.Errorf("HOLE: on the host there is\n%s", left)
		}
		c.works(b, "create /workspace")
	}
	// The control: in the sandbox's own files both can be done.
	own := c.fresh(boxOptions{many: true})
	c.works(own, "write /work/file x")
	c.works(own, "file_capability /work/file")
	c.works(own, "chmod_suid 04755 /work")
}

// rootOthers reads a file of a user who does not own the directory. The control reads one of who does.
func rootOthers(c *trial) {
	if !asRoot() {
		c.lacking("only root can give a file away")
	}
	dir := c.mountable(1234)
	for name, owner := range map[string]int{"own": 1234, "other": 4321} {
		path := filepath.Join(dir, name)
		must(c, os.WriteFile(path, []byte("x"), 0o600))
		must(c, os.Chown(path, owner, owner))
	}
	b := c.mounted(dir, false)
	c.works(b, "read /workspace/own")
	c.row.deny = append([]string{"EOVERFLOW"}, denied...)
	c.denied(b, "read /workspace/other")
	c.denied(b, "open_write /workspace/other")
}
