//go:build linux

package disk

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTemplates: an image that is a copy of what mke2fs wrote is sound, holds what its size says, and shares nothing
// with others of the size, which are mounted at the same time.
func TestTemplates(t *testing.T) {
	needRoot(t)
	var templates Templates
	small, large := Size{16 << 20, 100}, Size{4 << 30, 500_000}
	create := func(s Size) Image {
		t.Helper()
		dir := t.TempDir()
		i := Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk")}
		t.Cleanup(func() {
			if err := i.Unmount(); err != nil {
				t.Error(err)
			}
			gone(t, i)
			if out, err := exec.Command("/usr/sbin/e2fsck", "-f", "-n", i.File).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		if err := templates.Create(t.Context(), i, s); err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := create(small)
	if err := os.WriteFile(filepath.Join(first.Dir, "mine"), []byte("of the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	create(large)
	if known, ok := templates.find(small); !ok || len(known.extents) == 0 {
		t.Fatalf("nothing was learned: %+v", known)
	}
	second, huge := create(small), create(large)
	if entries, err := os.ReadDir(second.Dir); err != nil || len(entries) != 1 || entries[0].Name() != "lost+found" {
		t.Errorf("a new disk has %v, %v", entries, err)
	}
	if n := fill(t, filepath.Join(second.Dir, "all")); n < 15<<20 || n > 18<<20 {
		t.Errorf("it holds %d bytes", n)
	}
	if used, err := huge.Used(); err != nil || used.Room < 4<<30 || used.InodesLeft < 499_000 || used.Host > 1<<20 {
		t.Errorf("%+v, %v", used, err)
	}
	uuid := func(i Image) string { // s_uuid of the superblock
		b, err := os.ReadFile("/dev/" + loopOf(t, i)) // of 16 MiB
		if err != nil {
			t.Fatal(err)
		}
		return string(b[1024+0x68 : 1024+0x78])
	}
	if uuid(first) != uuid(second) {
		t.Error("a program has made the second")
	}
	if device(t, first.Dir) == device(t, second.Dir) {
		t.Error("both have one device")
	}
	text, err := os.ReadFile(filepath.Join(first.Dir, "mine"))
	if string(text) != "of the first" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := templates.Create(t.Context(), second, small); !errors.Is(err, unix.EEXIST) {
		t.Errorf("an image took the place of another: %v", err)
	}
}

// TestTemplatesAreFew: only the latest sizes are kept, and none from a file that tells no zeros.
func TestTemplatesAreFew(t *testing.T) {
	needRoot(t)
	var templates Templates
	for n := range int64(mostTemplates + 2) {
		i := Image{File: filepath.Join(t.TempDir(), "image")}
		if err := i.Make(t.Context(), Size{n << 20, 16}); err != nil {
			t.Fatal(err)
		}
		templates.learn(i, Size{n << 20, 16})
	}
	_, oldest := templates.find(Size{0, 16})
	_, latest := templates.find(Size{(mostTemplates + 1) << 20, 16})
	if len(templates.all) != mostTemplates || oldest || !latest {
		t.Errorf("%d, oldest %t, latest %t", len(templates.all), oldest, latest)
	}
	i := Image{File: filepath.Join(t.TempDir(), "image")}
	if err := os.WriteFile(i.File, make([]byte, largest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	templates.learn(i, Size{1, 1})
	if _, ok := templates.find(Size{1, 1}); ok {
		t.Error("a file without holes is a template")
	}
}
