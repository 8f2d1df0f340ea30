//go:build linux

package mounts

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloneIsPrivate: the original is a shared mount, as every mount is on a host with systemd. What is mounted on its
// clone is not seen on it, and what is mounted on it is not seen on the clone.
func TestCloneIsPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	original, target := filepath.Join(dir, "original"), filepath.Join(dir, "target")
	for _, d := range []string{original, target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tmpfs := func(at string) error { return os.NewSyscallError("mount", unix.Mount("none", at, "tmpfs", 0, "")) }
	err := onThreadOfItsOwn(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := tmpfs(original); err != nil {
			return err
		}
		if err := unix.Mount("", original, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
		for _, name := range []string{"a", "b"} {
			if err := os.Mkdir(filepath.Join(original, name), 0o755); err != nil {
				return err
			}
		}
		tree, err := Clone(unix.AT_FDCWD, original)
		if err != nil {
			return err
		}
		defer tree.Close()
		if err := put(int(tree.Fd()), target); err != nil {
			return err
		}
		for _, way := range []struct{ on, seen, name string }{{target, original, "a"}, {original, target, "b"}} {
			if err := tmpfs(filepath.Join(way.on, way.name)); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(way.on, way.name, "file"), nil, 0o644); err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(way.seen, way.name, "file")); !os.IsNotExist(err) {
				t.Errorf("a mount on %s is seen on %s: %v", filepath.Base(way.on), filepath.Base(way.seen), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
