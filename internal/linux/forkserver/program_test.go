//go:build linux

package forkserver

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// TestProgramStaysInItsPlace: a child is started whatever the descriptors of its other files are.
func TestProgramStaysInItsPlace(t *testing.T) {
	p, err := OpenProgram("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	at := int(p.file.Fd())
	for below := range 8 { // the child has its first spare descriptor above the highest of these
		fd, err := unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, at-1-below)
		if err != nil {
			t.Fatal(err)
		}
		high := os.NewFile(uintptr(fd), os.DevNull)
		child, err := os.StartProcess(p.Path(), []string{"true"}, &os.ProcAttr{Files: p.Among(null, null, null, high)})
		if err != nil {
			t.Errorf("with a file at %d, and the program at %d: %v", fd, at, err)
		} else if state, err := child.Wait(); err != nil || !state.Success() {
			t.Errorf("with a file at %d: %v, %v", fd, state, err)
		}
		high.Close()
	}
}
