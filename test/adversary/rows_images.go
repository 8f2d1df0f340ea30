package adversary

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// hashFile is the digest of a file, empty when it cannot be read.
func hashFile(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// imageRows are images made to break out while the sandbox is being built (F4).
func imageRows() []row {
	var rows []row
	rows = append(rows, row{id: "F4.plain", invariant: "H1", what: "the control of F4: an image without tricks works",
		test: func(c *trial) {
			c.works(c.imageBox(nil), "read /etc/passwd")
		}})
	for i, name := range []string{"proc", "sys", "dev", "work", "tmp", "run", "home", "home/cove", "etc",
		"etc/resolv.conf", "etc/hosts", "etc/hostname",
		"dev/shm", "dev/null", "var", "var/tmp", "workspace", ".cove", "proc/self", "cove-guest"} {
		rows = append(rows, row{id: "F4." + strings.ReplaceAll(strings.TrimPrefix(name, "."), "/", "_"), invariant: "H1",
			what: "an image whose /" + name + " is a symlink to a place of the host's",
			test: func(c *trial) { c.symlinkedImage(name, i) }})
	}
	return append(rows,
		row{id: "F4.file_for_directory", invariant: "H1",
			what: "an image that has files, pipes and devices where directories belong", test: wrongKinds},
		row{id: "F4.device_node", invariant: "H2", what: "an image with device nodes", test: imageDevice},
		row{id: "F4.image_unchanged", invariant: "H2", what: "write into the image that other sandboxes share",
			test: imageUnchanged})
}

// symlinkedImage prepares an image in which name leads out. Either it is refused, or the sandbox has a directory of its
// own there; never is anything written or read at the place of the host's. number chooses the form where one is tried.
func (c *trial) symlinkedImage(name string, number int) {
	bait := c.TempDir()
	must(c, os.Chmod(bait, 0o777))
	word := canaryWord()
	must(c, os.WriteFile(filepath.Join(bait, "CANARY_"+word), []byte(word), 0o666))
	must(c, os.WriteFile(filepath.Join(bait, "passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o666))
	before := treeOf(bait)
	target := bait
	if filepath.Ext(strings.TrimPrefix(name, ".")) != "" || strings.HasPrefix(name, "etc/") || name == "dev/null" ||
		name == "cove-guest" {
		target = filepath.Join(bait, "CANARY_"+word)
	}
	forms := []string{target, strings.Repeat("../", 20) + strings.TrimPrefix(target, "/"), "/proc/1/root" + target,
		"/proc/self/cwd" + target}
	if c.suite.options.Slow && !long() {
		forms = forms[number%len(forms):][:1]
	}
	var wait sync.WaitGroup
	for _, form := range forms {
		rootfs := c.plantedImage(func(root string) {
			path := filepath.Join(root, name)
			must(c, os.MkdirAll(filepath.Dir(path), 0o755))
			os.RemoveAll(path)
			must(c, os.Symlink(form, path))
		})
		wait.Go(func() {
			b, err := c.suite.make(c, boxOptions{rootfs: &rootfs, many: true})
			if err != nil {
				c.Logf("%s -> %s: refused: %v", name, form, err)
				return
			}
			c.nothingOfBait(b, word)
			b.destroy(c)
		})
	}
	wait.Wait()
	if after := treeOf(bait); after != before {
		c.Errorf("HOLE: /%s is a symlink: the host's directory changed from\n%s to\n%s", name, before, after)
	}
}

// nothingOfBait lets the attacker use every place that is writable, and look for the canary.
func (c *trial) nothingOfBait(b *box, word string) {
	c.Helper()
	for _, dir := range []string{"/work", "/tmp", "/run", cove.Home, "/dev/shm"} {
		b.try(c, "write "+dir+"/left-by-probe x")
	}
	r := b.try(c, "search "+hex.EncodeToString([]byte(word)))
	if r.Outcome == "error" {
		c.Errorf("not tested: %s", say(r))
	}
	for _, line := range r.Lines {
		if !strings.HasPrefix(line, "name /proc/") || !strings.Contains(line, "environ") {
			c.Errorf("HOLE: the host's canary is reached: %s", line)
		}
	}
}

// treeOf describes everything below a directory.
func treeOf(root string) string {
	var b strings.Builder
	filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		var st unix.Stat_t
		unix.Lstat(path, &st)
		rel, _ := filepath.Rel(root, path)
		fmt.Fprintf(&b, "%s mode %o owner %d:%d", rel, st.Mode, st.Uid, st.Gid)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			fmt.Fprintf(&b, " %s", hashFile(path))
		}
		names := make([]byte, 4<<10)
		if n, _ := unix.Llistxattr(path, names); n > 0 {
			fmt.Fprintf(&b, " attributes %q", names[:n])
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String()
}

// wrongKinds is an image in which nothing is what its name says.
func wrongKinds(c *trial) {
	rootfs := c.plantedImage(func(root string) {
		for i, name := range []string{"proc", "sys", "dev", "work", "tmp", "run", "home"} {
			path := filepath.Join(root, name)
			os.RemoveAll(path)
			if i%2 == 0 {
				must(c, os.WriteFile(path, []byte("a file"), 0o644))
			} else {
				must(c, unix.Mkfifo(path, 0o644))
			}
		}
	})
	b, err := c.suite.make(c, boxOptions{rootfs: &rootfs})
	if err != nil {
		c.remark("refused: %v", err)
		return
	}
	defer b.destroy(c)
	c.works(b, "create /work")
	c.works(b, "read /proc/self/status")
}

// devNull and devKmsg are devices that are harmless to open. The second is none of those that a sandbox has.
const devNull, devKmsg = 3, 11

// plantNode makes a node of one of the kernel's memory devices.
func (c *trial) plantNode(path string, minor uint32) {
	c.Helper()
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))); err != nil {
		c.Fatal("not tested: mknod: ", err)
	}
	must(c, os.Chmod(path, 0o666))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		c.remark("the node does not open outside either: %v", err)
		return
	}
	f.Close()
}

func imageDevice(c *trial) {
	if !asRoot() {
		c.lacking("only root can plant a device node")
	}
	b := c.imageBox(func(root string) { c.plantNode(filepath.Join(root, "null"), devNull) })
	c.row.deny = hidden
	c.denied(b, "open_rdwr /null")
	c.works(b, "open_rdwr /dev/null")
}

// imageUnchanged compares the image's tree before and after a sandbox that
// wrote wherever it could; a second sandbox sees nothing of it.
func imageUnchanged(c *trial) {
	rootfs := c.plantedImage(func(root string) {
		must(c, os.WriteFile(filepath.Join(root, "etc/open"), []byte("as it was"), 0o666))
		must(c, os.Chmod(filepath.Join(root, "etc/open"), 0o666))
		must(c, os.Mkdir(filepath.Join(root, "shared"), 0o777))
		must(c, os.Chmod(filepath.Join(root, "shared"), 0o777))
	})
	before := treeOf(rootfs.Dir)
	a := c.fresh(boxOptions{rootfs: &rootfs})
	for _, attempt := range []string{"write /etc/open changed", "write /shared/new x", "write /etc/passwd x",
		"write /bin/probe x"} {
		c.Logf("%s: %s", attempt, say(a.try(c, attempt)))
	}
	c.works(a, "write /work/own x")
	if after := treeOf(rootfs.Dir); after != before {
		c.Errorf("HOLE: the image changed from\n%s to\n%s", before, after)
	}
	b := c.fresh(boxOptions{rootfs: &rootfs})
	if r := c.works(b, "cat /etc/open"); r.Detail != hex.EncodeToString([]byte("as it was")) {
		c.Errorf("HOLE: another sandbox of the image reads %s", r.Detail)
	}
	c.row.deny = hidden
	c.denied(b, "read /shared/new")
}
