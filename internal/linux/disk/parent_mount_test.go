//go:build linux

package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// below makes images below a base that lies on a mount of its own with a propagation.
func below(t *testing.T, propagation uintptr, names ...string) (base string, all []Image) {
	t.Helper()
	needRoot(t)
	top := t.TempDir()
	base = filepath.Join(top, "the base")
	if err := os.Mkdir(base, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(top, top, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(top, unix.MNT_DETACH) })
	for _, to := range []uintptr{unix.MS_PRIVATE, propagation} { // and not among the peers of what it is a part of
		if err := unix.Mount("", top, "", to, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		dir := filepath.Join(base, name)
		i := Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk"), Base: base}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := i.Make(t.Context(), Size{1 << 20, 64}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := i.Unmount(); err != nil {
				t.Error(err)
			}
			gone(t, i)
		})
		all = append(all, i)
	}
	return base, all
}

// points counts the mounts of a directory, and those below it.
func points(t *testing.T, dir string) (at, below int) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.ReplaceAll(dir, " ", `\040`)
	for line := range strings.Lines(string(table)) {
		switch point := strings.Fields(line)[4]; {
		case point == dir:
			at++
		case strings.HasPrefix(point, dir+"/"):
			below++
		}
	}
	return at, below
}

func want(t *testing.T, base string, at, below int) {
	t.Helper()
	if a, b := points(t, base); a != at || b != below {
		t.Errorf("the base is %d mounts, with %d below, want %d and %d", a, b, at, below)
	}
}

// TestBase: each image is one mount below one mount, and that goes with the last image.
func TestBase(t *testing.T) {
	for name, propagation := range map[string]uintptr{"shared": unix.MS_SHARED, "private": unix.MS_PRIVATE} {
		t.Run(name, func(t *testing.T) {
			base, images := below(t, propagation, "a", "b")
			for n, i := range images {
				if err := i.Mount(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(i.Dir, "x"), []byte("x"), 0o600); err != nil {
					t.Error(err)
				}
				want(t, base, 1, n+1)
			}
			if err := DropBase(base); err != nil {
				t.Error(err)
			}
			want(t, base, 1, 2)
			if err := os.Rename(filepath.Dir(images[1].Dir), filepath.Join(base, "c")); err != nil {
				t.Error(err)
			}
			images[1].Dir = filepath.Join(base, "c", "disk")
			open, err := os.Open(base)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			for n, i := range images {
				if err := i.Unmount(); err != nil {
					t.Error(err)
				}
				want(t, base, 1-n, 1-n)
			}
			if err := os.Rename(filepath.Join(base, "c"), filepath.Join(base, "b")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBaseOfKilled: the next process ends the mount of one that was killed before it mounted an image.
func TestBaseOfKilled(t *testing.T) {
	base, images := below(t, unix.MS_SHARED, "a")
	held, is, err := images[0].hold(t.Context())
	if err != nil || !is {
		t.Fatal(is, err)
	}
	held.Close()
	want(t, base, 1, 0)
	for range 2 {
		if err := DropBase(base); err != nil {
			t.Error(err)
		}
		want(t, base, 0, 0)
	}
	if err := DropBase(filepath.Join(base, "missing")); err != nil {
		t.Error(err)
	}
}

// TestBaseOfEarlierVersion: images that were mounted without a base go on, and leave nothing.
func TestBaseOfEarlierVersion(t *testing.T) {
	base, images := below(t, unix.MS_SHARED, "old", "new")
	old := images[0]
	old.Base = ""
	if err := old.Mount(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		if err := i.Mount(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if at, _ := points(t, base); at != 0 {
		t.Error("images of an earlier version are hidden")
	}
	for _, i := range images {
		if err := i.Unmount(); err != nil {
			t.Error(err)
		}
		gone(t, i)
	}
	want(t, base, 0, 0)
}

// TestBaseOfOthers: a directory that is a mount of its own is no base, and stays.
func TestBaseOfOthers(t *testing.T) {
	base, _ := below(t, unix.MS_SHARED)
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	i := Image{Base: base}
	if held, is, err := i.hold(t.Context()); err != nil || is {
		t.Error(is, err)
	} else {
		held.Close()
	}
	if err := DropBase(base); err != nil {
		t.Error(err)
	}
	want(t, base, 1, 0)
}
