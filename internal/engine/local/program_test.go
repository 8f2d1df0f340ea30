//go:build linux

package local

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestProgram: a process in a new user namespace is started from a directory of another user's that is closed to it.
func TestProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a directory of another user's")
	}
	dir := t.TempDir()
	text, err := os.ReadFile("/bin/true")
	path := filepath.Join(dir, "true")
	err = errors.Join(err, os.WriteFile(path, text, 0o755), os.Chmod(dir, 0o700), os.Chown(dir, 61000, 61000))
	if err != nil {
		t.Fatal(err)
	}
	start := func(path string) error {
		c := exec.Command(path)
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		return c.Run()
	}
	if err := start(path); !errors.Is(err, fs.ErrPermission) {
		t.Skipf("the directory is not closed to a user namespace here: %v", err)
	}
	p, err := OpenProgram(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := errors.Join(os.Remove(path), start(p.Path())); err != nil {
		t.Error(err)
	}
	if _, err := OpenProgram(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
