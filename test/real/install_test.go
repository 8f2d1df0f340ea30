package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstall: "sudo make install" installs what was built. It builds nothing, since root's PATH has no Go.
func TestInstall(t *testing.T) {
	if _, err := os.Stat("../../Makefile"); err != nil {
		t.Skip("the Makefile is not in the VM")
	}
	t.Parallel()
	to := t.TempDir()
	install := func(target, bin string) (string, error) {
		c := exec.Command("make", "-C", "../..", target, "BIN="+bin, "DESTDIR="+to)
		c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := install("install", t.TempDir()); err == nil || !strings.Contains(out, `run "make build" first`) {
		t.Errorf("without anything built: %v, %s", err, out)
	}
	if out, err := install("install", programs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bin := filepath.Join(to, "usr/local/bin")
	if out, err := exec.Command(filepath.Join(bin, "cove"), "version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for _, name := range []string{"cove-server", "cove-guest", "cove-worker", "git-remote-cove"} {
		if info, err := os.Stat(filepath.Join(bin, name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := install("uninstall", programs); err != nil || !strings.Contains(out, "/var/lib/cove") {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(bin); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
