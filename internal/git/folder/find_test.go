package folder

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// TestPipes: a repository in which git would wait for a writer is none, and a directory in place of a file is no pipe.
func TestPipes(t *testing.T) {
	for _, name := range []string{"HEAD", "config", "packed-refs", "info/exclude"} {
		dir := t.TempDir()
		if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
			t.Skipf("git does not run: %v %s", err, out)
		}
		if _, err := GitDirectory(dir); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, ".git", name)
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := GitDirectory(dir); cove.ErrorCode(err) != cove.NotFound {
			t.Errorf("with a pipe at %s: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o755); err != nil || Waits(dir) {
		t.Errorf("a directory named config: %v", err)
	}
}
