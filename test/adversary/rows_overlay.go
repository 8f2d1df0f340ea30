package adversary

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
)

// overlayRows are attempts at directories that sandboxes share by an overlay in their homes.
func overlayRows() []row {
	return []row{
		{id: "O1.change", invariant: "H1", what: "change a file that others have by the same overlay, or add a name to it",
			test: overlayChange},
		{id: "O2.beyond", invariant: "H1", what: "find where an overlay has its files, or what lies beside them",
			test: overlayBeyond},
	}
}

const overlayName = ".shared"

// shared makes a directory with a file in it, and a sandbox that has it in its overlay.
func (c *trial) shared() (dir string, b *box) {
	c.Helper()
	if !c.suite.caps.Overlay {
		c.lacking("this engine has no overlays: %s", c.suite.caps.Missing["overlay"])
	}
	dir = filepath.Join(c.mountable(os.Geteuid()), "lower")
	must(c, os.MkdirAll(filepath.Join(dir, "deep"), 0o755))
	must(c, os.WriteFile(filepath.Join(dir, "deep/file"), []byte("as it was"), 0o755))
	must(c, os.WriteFile(filepath.Join(filepath.Dir(dir), "beside"), []byte("of another"), 0o644))
	return dir, c.fresh(boxOptions{overlay: dir})
}

// showOverlay adds the overlay of a sandbox to its binding.
func showOverlay(b *engine.Binding, o boxOptions) error {
	place, err := os.OpenFile(o.overlay, unix.O_PATH, 0)
	b.Overlay = &engine.Overlay{Lower: []*os.File{place}, Name: overlayName}
	if err == nil && o.changes != "" {
		b.Changes, err = os.OpenFile(o.changes, unix.O_PATH, 0)
	}
	return err
}

// sh has a shell execute a script in the overlay of a sandbox.
func (b *box) sh(c *trial, script string) run {
	c.Helper()
	place := path.Join(b.user.Home, overlayName)
	return b.run(c, guest.ProcessSpec{Args: []string{"/bin/sh", "-c", script}, Dir: place, Env: plainEnvironment()})
}

// state describes everything in a directory: names, contents, owners, modes, links.
func state(c *trial, dir string) string {
	c.Helper()
	var all strings.Builder
	must(c, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(name, &st)
		}
		var data []byte
		if err == nil && d.Type().IsRegular() { // opening a pipe could wait for ever
			data, err = os.ReadFile(name)
		}
		fmt.Fprintf(&all, "%s %o %d:%d %d %d %q\n", name, st.Mode, st.Uid, st.Gid, st.Nlink, st.Ino, data)
		return err
	}))
	return all.String()
}

func overlayChange(c *trial) {
	dir, b := c.shared()
	c.attackOverlay(dir, b)
	changes := filepath.Join(c.mountable(os.Geteuid()), "changes")
	must(c, engine.MakeLayer(changes))
	c.Cleanup(func() { must(c, local.FindIDs().RemoveAll(changes)) })
	o := boxOptions{overlay: dir, changes: changes}
	kept := c.fresh(o)
	c.attackOverlay(dir, kept)
	kept.destroy(c)
	if r := c.fresh(o).sh(c, "cat deep/file new"); r.stdout != "taken\ntaken\n" {
		c.Errorf("not tested: what a sandbox has changed on its disk is %+v", r)
	}
}

// attackOverlay has a sandbox change what it can.
func (c *trial) attackOverlay(dir string, b *box) {
	c.Helper()
	other := c.fresh(boxOptions{overlay: dir})
	before := state(c, dir)
	if r := b.sh(c, "cat deep/file"); r.stdout != "as it was" {
		c.Fatalf("not tested: the sandbox does not have the file: %+v", r)
	}
	for _, script := range []string{
		"exec 3< deep/file; echo taken > /proc/self/fd/3",
		"ln deep/file linked && echo taken > linked",
		"ln deep/file /tmp/linked",
		"chmod 4777 deep/file; chown 0:0 deep/file; touch -d @1 deep/file",
		"exec 3>> deep/file; echo taken >&3",
		"mv deep/file moved; echo taken > deep/file; rm -rf deep; mkdir deep; echo taken > deep/file",
		"echo taken > new; mkdir more; mkfifo pipe; ln -s /etc link",
		"mount --bind /tmp deep; umount -l .; mount -o remount,rw .",
	} {
		b.sh(c, script)
		if now := state(c, dir); now != before {
			c.Errorf("HOLE: after %q there is\n%snot\n%s", script, now, before)
			before = now
		}
		if r := other.sh(c, "cat deep/file; ls -A"); r.stdout != "as it wasdeep\n" {
			c.Errorf("HOLE: after %q another sandbox has %q", script, r.stdout)
		}
	}
	if r := b.sh(c, "cat deep/file new"); r.stdout != "taken\ntaken\n" {
		c.Errorf("not tested: what the sandbox has changed for itself is %+v", r)
	}
}

func overlayBeyond(c *trial) {
	dir, b := c.shared()
	r := b.sh(c, "cat ../beside ./../beside deep/../../beside; cd -P .; ls -R .. 2>&1; cat /proc/self/mountinfo")
	if !strings.Contains(r.stdout, "overlay") {
		c.Errorf("not tested: %+v", r)
	}
	for _, what := range []string{"of another", "beside\n", filepath.Dir(dir)} {
		if strings.Contains(r.stdout, what) {
			c.Errorf("HOLE: a sandbox sees %q: %s", what, r.stdout)
		}
	}
	for _, flag := range []string{"nosuid", "nodev"} {
		for line := range strings.Lines(r.stdout) {
			if strings.Contains(line, "/"+overlayName+" ") && !strings.Contains(line, flag) {
				c.Errorf("HOLE: the overlay is without %s: %s", flag, line)
			}
		}
	}
}
