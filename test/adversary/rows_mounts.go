package adversary

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// mountRows are attempts through directories that a user gave a sandbox (F5, F8, H3 of PROBES.md; invariant H5).
func mountRows() []row {
	return []row{
		{id: "F8.ownership", invariant: "H5", what: "leave a setuid or a foreign file in a mounted directory for the host",
			test: mountOwnership},
		{id: "F8.setuid", invariant: "H5", what: "give a file in a mounted directory a setuid bit by any call there is",
			test: mountSetuid},
		{id: "F8.device", invariant: "H5", what: "leave a device or a capability in a mounted directory", test: mountDevice},
		{id: "F8.flags", invariant: "H5", what: "find a mounted directory without nosuid and nodev", test: mountFlags},
		{id: "F8.read_only", invariant: "H5", what: "write to a read-only mount", test: mountReadOnly},
		{id: "F8.lease", invariant: "H5", what: "hold up whoever opens a file of a read-only mount, or be told of it",
			test: mountLease},
		{id: "F8.symlinks", invariant: "H5", what: "follow a symlink out of a mounted directory", test: mountSymlinks},
		{id: "F8.climb", invariant: "H5", what: "climb out of a mounted directory, also while it is moved on the host",
			test: mountClimb},
		{id: "F8.hard_link", invariant: "H5", what: "link a file of the image or of another mount into a mounted directory",
			test: mountHardLink},
		{id: "F8.target", invariant: "H2", what: "mount over what the wall depends on", test: mountTargets},
		{id: "H5.forbidden", invariant: "H5", what: "have a forbidden place mounted, directly and through symlinks",
			test: forbiddenPlaces},
		{id: "H5.engine_socket", invariant: "H5", what: "have a container engine's socket mounted, or the directory it is in",
			test: engineSocketMount},
		{id: "F5.check_race", invariant: "H5", what: "swap a component of the source between check and open",
			test: checkRace},
		{id: "F5.mount_race", invariant: "H5", what: "swap a component of the source while sandboxes mount it",
			test: mountRace},
	}
}

// mountable makes a directory that may be mounted, owned by somebody.
func (c *trial) mountable(owner int) string {
	c.Helper()
	if !c.suite.caps.LateMount {
		c.lacking("this engine mounts nothing: %s", c.suite.caps.Missing["late_mount"])
	}
	dir, err := os.MkdirTemp("", "workspace")
	must(c, err)
	c.Cleanup(func() { os.RemoveAll(dir) })
	must(c, os.Chmod(dir, 0o755))
	if asRoot() {
		if !c.suite.caps.MountOwners {
			owner = cove.CodeUser.UID // or nothing could be written in it
		}
		must(c, os.Chown(dir, owner, owner))
	}
	return dir
}

// mounted is a sandbox with a directory of the host's at cove.Workspace.
func (c *trial) mounted(dir string, readOnly bool) *box {
	c.Helper()
	return c.fresh(boxOptions{many: true, mounts: []cove.Mount{{Source: dir, Target: cove.Workspace, ReadOnly: readOnly}}})
}

// mountOwnership looks from the host at what the attacker made: it belongs to
// the owner of the directory, and none of it is setuid.
func mountOwnership(c *trial) {
	for _, owner := range []int{0, 1234} {
		dir := c.mountable(owner)
		b := c.mounted(dir, false)
		c.works(b, "write /workspace/plain x")
		b.try(c, "create_suid /workspace "+token())
		b.try(c, "mkfifo /workspace/fifo")
		var top unix.Stat_t
		must(c, unix.Stat(dir, &top))
		want := int(top.Uid)
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			var st unix.Stat_t
			if err != nil || unix.Lstat(path, &st) != nil {
				return err
			}
			if int(st.Uid) != want {
				c.Errorf("HOLE: %s belongs to %d, the directory to %d", d.Name(), st.Uid, want)
			}
			if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
				c.Errorf("HOLE: %s is a setuid file of id %d on the host (mode %o)", d.Name(), st.Uid, st.Mode)
			}
			return nil
		})
	}
}

func mountSetuid(c *trial) {
	dir := c.mountable(1234)
	b := c.mounted(dir, false)
	c.row.deny = append([]string{"UNCHANGED"}, denied...)
	for _, mode := range []string{"04755", "02755", "06777"} {
		c.denied(b, "chmod_suid "+mode+" /workspace")
		c.denied(b, "open_suid "+mode+" /workspace")
	}
	if r := c.suite.outside(c, "chmod_suid 04755"); len(r.Lines) == 0 {
		c.Errorf("not tested: no setuid bit outside either: %s", say(r))
	}
	if r := c.suite.outside(c, "open_suid 04755 /tmp"); len(r.Lines) == 0 {
		c.Errorf("not tested: no setuid bit outside either: %s", say(r))
	}
	c.works(b, "create /workspace")
}

func mountDevice(c *trial) {
	dir := c.mountable(1234)
	if asRoot() {
		c.plantNode(filepath.Join(dir, "null"), devNull)
		c.plantNode(filepath.Join(dir, "kmsg"), devKmsg)
		must(c, os.WriteFile(filepath.Join(dir, "suid"), c.suite.probe, 0o755))
		must(c, os.Chmod(filepath.Join(dir, "suid"), 0o755|os.ModeSetuid))
	}
	b := c.mounted(dir, false)
	c.row.deny = hidden
	if asRoot() {
		c.denied(b, "open_write /workspace/kmsg")
		if c.suite.caps.MountFlags { // elsewhere a second node of a device that is there anyway
			c.denied(b, "open_rdwr /workspace/null")
		}
		attempt := "exec_ids /workspace/suid"
		if c.suite.options.Root {
			attempt = "as 1000 " + attempt
		}
		if r := b.try(c, attempt); strings.Contains(" "+field(r.Detail, "Uid")+" ", " 0 ") {
			c.Errorf("HOLE: %s", r.Detail)
		}
	}
	c.works(b, "create /workspace")
	c.row.deny = append([]string{"EINVAL", "EOPNOTSUPP"}, denied...)
	c.denied(b, "mknod c 1 3")
	c.works(b, "write /workspace/plain x")
	c.denied(b, "file_capability /workspace/plain")
}

func mountFlags(c *trial) {
	if !c.suite.caps.MountFlags {
		c.lacking("only no_new_privs and the list of devices, as F8.device shows: %s", c.suite.caps.Missing["mount_flags"])
	}
	b := c.mounted(c.mountable(1234), false)
	seen := false
	for _, line := range c.works(b, "mountinfo").Lines {
		f := strings.Fields(line)
		if len(f) > 5 && f[4] == cove.Workspace {
			seen = true
			if !strings.Contains(f[5], "nosuid") || !strings.Contains(f[5], "nodev") {
				c.Errorf("HOLE: %s", line)
			}
		}
	}
	if !seen {
		c.Error("not tested: the mount is not in the table")
	}
}

func mountReadOnly(c *trial) {
	dir := c.mountable(1234)
	must(c, os.WriteFile(filepath.Join(dir, "file"), []byte("as it was"), 0o666))
	must(c, os.Chmod(filepath.Join(dir, "file"), 0o666))
	before := treeOf(dir)
	b := c.mounted(dir, true)
	c.works(b, "read /workspace/file")
	c.row.deny = hidden
	for _, attempt := range []string{"open_write /workspace/file", "create /workspace", "mkdir /workspace",
		"write /workspace/file x", "mkfifo /workspace/f",
		"hardlink /workspace/file /workspace/other", "rename /workspace/file /workspace/other", "remount_rw /workspace",
		"open_write /proc/self/cwd/../workspace/file"} {
		c.denied(b, attempt)
	}
	ctx, cancel := c.fileAPI()
	defer cancel()
	if err := b.sandbox.Guest().WriteFile(ctx, "/workspace/file", 0o644, []byte("x")); err == nil {
		c.Error("HOLE: the guest writes to a read-only mount")
	}
	if after := treeOf(dir); after != before {
		c.Errorf("HOLE: the host's directory changed from\n%s to\n%s", before, after)
	}
}

// mountLease asks for leases of a file that is the program's own by its id, as a lease needs, and may not be written.
func mountLease(c *trial) {
	dir := c.mountable(1234)
	file := filepath.Join(dir, "file")
	must(c, os.WriteFile(file, []byte("x"), 0o666))
	var top unix.Stat_t
	must(c, unix.Stat(dir, &top))
	must(c, os.Chown(file, int(top.Uid), int(top.Gid)))
	b := c.mounted(dir, true)
	c.works(b, "read /workspace/file")
	c.row.deny = denied
	c.denied(b, "lease /workspace/file")
	if out := c.suite.outside(c, "lease "+file); out.Outcome != outcome.Succeeded {
		c.Errorf("not tested: no lease without a sandbox either: %s", say(out))
	}
}

func mountSymlinks(c *trial) {
	dir := c.mountable(1234)
	bait, word := c.bait()
	for i, target := range []string{bait, "../../../../../.." + bait, "/proc/1/root" + bait,
		"/proc/self/cwd/../../.." + bait} {
		must(c, os.Symlink(target, filepath.Join(dir, fmt.Sprintf("out%d", i))))
	}
	b := c.mounted(dir, false)
	c.row.deny = hidden
	for i := range 4 {
		c.denied(b, fmt.Sprintf("read /workspace/out%d/%s", i, word))
		c.denied(b, fmt.Sprintf("create /workspace/out%d", i))
	}
	if data, err := os.ReadFile(filepath.Join(dir, "out0", word)); err != nil || string(data) != word {
		c.Errorf("not tested: the symlink leads nowhere outside either: %v", err)
	}
	c.works(b, "create /workspace")
}

// bait is a directory in a place that no sandbox may see, with a canary whose name and content are the word.
func (c *trial) bait() (dir, word string) {
	c.Helper()
	word = "CANARY_" + canaryWord()
	dir, err := os.MkdirTemp("/var/tmp", "cove-bait")
	must(c, err)
	c.Cleanup(func() { os.RemoveAll(dir) })
	must(c, os.Chmod(dir, 0o777))
	must(c, os.WriteFile(filepath.Join(dir, word), []byte(word), 0o666))
	return dir, word
}

// mountClimb moves a directory on the host while a process of the sandbox is in it, which is how ".." leaves a mount:
// the kernel stops it at the mount's root only as long as the directory is below that.
func mountClimb(c *trial) {
	parent := c.mountable(1234)
	word := "CANARY_" + canaryWord()
	must(c, os.WriteFile(filepath.Join(parent, word), []byte(word), 0o666))
	shared := filepath.Join(parent, "shared")
	must(c, os.MkdirAll(filepath.Join(shared, "a/b/c"), 0o777))
	b := c.mounted(shared, false)
	s := spec("climb_slowly " + word)
	s.Dir = "/workspace/a/b/c"
	p := b.start(c, s)
	if p == nil || !p.said("climbing") {
		c.Fatal("not tested: no process in the directory")
	}
	must(c, os.Rename(filepath.Join(shared, "a/b/c"), filepath.Join(parent, "moved")))
	p.Stdin().Close()
	p.Signal(c.Context(), 10)
	r := p.wait(patience).result
	if r.Outcome != "refused" {
		c.Errorf("HOLE: climbing out of a moved directory: %s", say(r))
	}
	if r := b.try(c, "climb "+word); r.Outcome != "refused" {
		c.Errorf("HOLE: %s", say(r))
	}
	must(c, os.WriteFile(filepath.Join(shared, word), []byte(word), 0o666))
	s = spec("climb " + word)
	s.Dir = "/workspace/a"
	if r := b.run(c, s).result; r.Outcome != "succeeded" {
		c.Errorf("not tested: what is inside is not found by climbing: %s", say(r))
	}
}

func mountHardLink(c *trial) {
	b := c.mounted(c.mountable(1234), false)
	c.works(b, "write /work/own x")
	c.row.deny = append([]string{"EXDEV"}, hidden...)
	for _, from := range []string{"/etc/passwd", "/work/own", "/bin/sh", "/dev/null", "/proc/self/status"} {
		c.denied(b, "hardlink "+from+" /workspace/linked")
	}
	c.works(b, "write /workspace/own x")
	c.works(b, "hardlink /workspace/own /workspace/linked2")
}

// mountTargets asks the engine for targets that would hide the wall. Whoever refuses, nothing must be mounted there.
func mountTargets(c *trial) {
	dir := c.mountable(1234)
	must(c, os.WriteFile(filepath.Join(dir, "marker"), []byte("x"), 0o644))
	c.works(c.mounted(dir, false), "read /workspace/marker")
	for _, target := range []string{"/proc", "/proc/self", "/dev", "/dev/shm", "/sys", "/", "/..", "/workspace/../proc",
		"relative", "", "/workspace/\x00"} {
		b, err := c.suite.make(c, boxOptions{mounts: []cove.Mount{{Source: dir, Target: target}}})
		if err != nil {
			c.Logf("%q is refused: %v", target, err)
			continue
		}
		for _, place := range []string{"/proc", "/dev", "/sys"} {
			if r := b.try(c, "read "+place+"/marker"); r.Outcome == "succeeded" {
				c.Errorf("HOLE: the host's directory is mounted over %s (target %q)", place, target)
			}
		}
		c.works(b, "read /proc/self/status")
		b.destroy(c)
	}
}

// forbiddenPlaces asks the host path allowlist, by the name and through a symlink, and by way of a directory above.
func forbiddenPlaces(c *trial) {
	home := c.mountable(os.Getuid())
	for _, sub := range []string{".ssh", ".aws", ".gnupg", ".claude", ".kube", ".docker", ".config/gcloud", "project"} {
		must(c, os.MkdirAll(filepath.Join(home, sub, "deep"), 0o755))
	}
	forbidden := []string{"/", "/etc", "/etc/ssl", "/var", "/var/lib", "/var/run", "/root", "/proc", "/proc/self", "/sys",
		"/sys/fs/cgroup", "/dev", "/dev/shm", "/boot",
		"/run", "/proc/self/root/etc", "/usr/../etc", home, filepath.Join(home, ".config")}
	for _, sub := range []string{".ssh", ".aws", ".gnupg", ".claude", ".kube", ".docker", ".config/gcloud"} {
		forbidden = append(forbidden, filepath.Join(home, sub), filepath.Join(home, sub, "deep"))
	}
	links := c.TempDir()
	for i, path := range forbidden {
		link := filepath.Join(links, fmt.Sprint(i))
		must(c, os.Symlink(path, link))
		for _, try := range []string{path, link, link + "/.", path + "/"} {
			if got, err := (hostpath.Rules{}).Check(try, nil); err == nil {
				c.Errorf("HOLE: %s may be mounted, as %s", try, got)
			}
		}
	}
	if _, err := (hostpath.Rules{}).Check(filepath.Join(home, "project"), nil); err != nil {
		c.Errorf("not tested: a project directory is refused as well: %v", err)
	}
	if _, err := (hostpath.Rules{}).Check(filepath.Join(home, "project"), []string{}); err == nil {
		c.Error("HOLE: an empty list of roots allows everything")
	}
	c.remark("%d places", len(forbidden))
}

func engineSocketMount(c *trial) {
	dir := c.mountable(os.Getuid())
	must(c, os.Mkdir(filepath.Join(dir, "project"), 0o755))
	for _, name := range []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock", "other.sock"} {
		sub := filepath.Join(dir, name+".d")
		must(c, os.Mkdir(sub, 0o755))
		stop := listenUnix(c, filepath.Join(sub, name))
		if got, err := (hostpath.Rules{}).Check(filepath.Join(sub, name), nil); err == nil {
			c.Errorf("HOLE: the socket %s may be mounted", got)
		}
		if got, err := (hostpath.Rules{}).Check(sub, nil); err == nil && name != "other.sock" {
			c.Errorf("HOLE: the directory %s with an engine's socket in it may be mounted", got)
		}
		stop()
	}
	if _, err := (hostpath.Rules{}).Check(filepath.Join(dir, "project"), nil); err != nil {
		c.Errorf("not tested: %v", err)
	}
}

// swapper swaps path between a directory and a symlink to target until stopped; swaps counts.
func swapper(path, target string) (stop func() int64) {
	dir, link := path+".dir", path+".link"
	os.Symlink(target, link)
	var done atomic.Bool
	var swaps atomic.Int64
	var wait sync.WaitGroup
	wait.Go(func() {
		for !done.Load() {
			os.Rename(path, dir)
			os.Rename(link, path)
			time.Sleep(50 * time.Microsecond)
			os.Rename(path, link)
			os.Rename(dir, path)
			swaps.Add(1)
			time.Sleep(50 * time.Microsecond)
		}
	})
	return func() int64 {
		done.Store(true)
		wait.Wait()
		return swaps.Load()
	}
}

// checkRace checks and opens a path of which one component is being swapped.
// What is opened must never lie in the forbidden place.
func checkRace(c *trial) {
	home := c.mountable(os.Getuid())
	bait, _ := c.bait()
	must(c, os.MkdirAll(filepath.Join(bait, "project"), 0o755))
	must(c, os.MkdirAll(filepath.Join(home, "swap/project"), 0o755))
	stop := swapper(filepath.Join(home, "swap"), bait)
	opened, refusals := 0, 0
	for range 5000 {
		resolved, err := hostpath.Rules{}.Check(filepath.Join(home, "swap/project"), []string{home})
		if err != nil {
			refusals++
			continue
		}
		o, err := hostpath.Rules{}.Open(c.Context(), resolved, hostpath.Wish{})
		if err != nil {
			refusals++
			continue
		}
		opened++
		var real, forbidden unix.Stat_t
		unix.Fstat(int(o.Place.Fd()), &real)
		unix.Stat(filepath.Join(bait, "project"), &forbidden)
		if real.Ino == forbidden.Ino && real.Dev == forbidden.Dev {
			c.Errorf("HOLE: the forbidden directory was opened as %s", resolved)
		}
		o.Close()
	}
	swaps := stop()
	if opened == 0 || refusals == 0 {
		c.Errorf("not tested: %d opened, %d refused: the race was never on", opened, refusals)
	}
	c.remark("%d opened, %d refused, %d swaps", opened, refusals, swaps)
}

// mountRace binds sandboxes with a source that is being swapped, several at a time.
func mountRace(c *trial) {
	home := c.mountable(os.Getuid())
	bait, word := c.bait()
	must(c, os.MkdirAll(filepath.Join(bait, "project"), 0o777))
	must(c, os.WriteFile(filepath.Join(bait, "project", word), []byte(word), 0o666))
	must(c, os.MkdirAll(filepath.Join(home, "swap/project"), 0o777))
	source := filepath.Join(home, "swap/project")
	stop := swapper(filepath.Join(home, "swap"), bait)
	var wait sync.WaitGroup
	var made, refusals atomic.Int64
	for range 4 {
		wait.Go(func() {
			for range 8 {
				b, err := c.suite.make(c, boxOptions{mounts: []cove.Mount{{Source: source, Target: cove.Workspace}}})
				if err != nil {
					refusals.Add(1)
					continue
				}
				made.Add(1)
				if r := b.try(c, "read /workspace/"+word); r.Outcome == "succeeded" {
					c.Errorf("HOLE: the forbidden directory was mounted")
				}
				b.destroy(c)
			}
		})
	}
	wait.Wait()
	swaps := stop()
	if swaps < 10 {
		c.Errorf("not tested: %d swaps only", swaps)
	}
	c.remark("%d mounted, %d refused, %d swaps", made.Load(), refusals.Load(), swaps)
}
