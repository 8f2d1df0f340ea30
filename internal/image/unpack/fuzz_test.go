package unpack

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzApply applies arbitrary bytes as two layers.
func FuzzApply(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(pack(f, entry{name: "a/"}, entry{name: "a/b", body: "x"}), pack(f, entry{name: "a/.wh.b"}))
	f.Add(pack(f, entry{name: "l", kind: tar.TypeSymlink, link: "../canary-dir"}),
		pack(f, entry{name: "l/canary", body: "x"}))
	f.Add(pack(f, entry{name: "../canary", body: "x"}), pack(f, entry{name: "h", kind: tar.TypeLink, link: "../canary"}))
	f.Add(bomb(f, 1<<20), sparse1TiB())
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58}, []byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		r := newRoom(t)
		r.limits = Limits{Entries: 200, Bytes: 1 << 20, Ratio: 100, NameLength: 1000, Depth: 20}
		_ = r.apply(Layer, lower, upper)
		r.untouched()
	})
}

// FuzzEntries maps bytes to entries with colliding names and targets, which arbitrary bytes hardly ever form.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{2, 0, 9, 0, 11, 0, 3, 0, 0, 1, 2, 3})
	f.Add([]byte("abcdefghijklmnopqrstuvwxyz0123456789"))
	names := []string{"a", "b", "l", "canary", "canary-dir", "a/b", "a/l", "l/a", "l/canary", "l/l", "b/a/l", "./",
		".wh.a", ".wh.l", "a/.wh.b", "l/.wh.canary",
		".wh..wh..opq", "a/.wh..wh..opq", "l/.wh..wh..opq", "..", "../canary", "/a", "a/../../canary", ".wh..."}
	targets := []string{"a", "b", "l", "..", ".", "/", "../canary", "../canary-dir", "/canary-dir", "a/b", "/a/../..",
		"l/..", "/proc/self/cwd", "../../../../.."}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar}
	f.Fuzz(func(t *testing.T, ops []byte) {
		r := newRoom(t)
		t.Chdir(filepath.Join(r.around, "canary-dir"))
		tree, err := New(r.dir, r.limits)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		for len(ops) >= 3 {
			var entries []entry
			// A refused entry ends its layer; the next entries go into another one.
			for len(ops) >= 3 {
				op := ops[:3]
				ops = ops[3:]
				name, kind := names[int(op[1])%len(names)], kinds[int(op[0])%len(kinds)]
				if strings.HasSuffix(name, "/") {
					kind = tar.TypeDir
				}
				entries = append(entries, entry{kind: kind, name: name,
					link: targets[int(op[2])%len(targets)], mode: int64(op[2]) << 4})
				if op[0] > 200 {
					break
				}
			}
			_, _ = tree.Apply(t.Context(), bytes.NewReader(pack(t, entries...)), Layer)
		}
		if _, err := tree.Finish(); err != nil {
			t.Errorf("finish: %v", err)
		}
		r.untouched()
	})
}

// FuzzClean: a clean path has no component that is empty, ".", ".." or too long.
func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "/", "a", "./a//b/", "../a", "a/..", "a\x00b", strings.Repeat("a/", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, err := DefaultLimits().clean(name)
		if err != nil || path == "." {
			return
		}
		parts := strings.Split(path, "/")
		if len(parts) > 255 || len(path) > 4095 {
			t.Errorf("%q is too long", path)
		}
		for _, p := range parts {
			if p == "" || p == "." || p == ".." || len(p) > 255 || strings.ContainsAny(p, "/\x00") {
				t.Errorf("%q became %q", name, path)
			}
		}
		if again, err := DefaultLimits().clean(path); err != nil || again != path {
			t.Errorf("clean(%q) = %q, %v", path, again, err)
		}
		if dir, base := split(path); filepath.Join(dir, base) != path || strings.Contains(base, "/") {
			t.Errorf("split(%q) = %q, %q", path, dir, base)
		}
	})
}

func TestNewWantsAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if tree, err := New(dir, DefaultLimits()); err == nil {
		tree.Close()
		t.Error("a directory with something in it was taken")
	}
	if _, err := New(filepath.Join(dir, "missing"), DefaultLimits()); err == nil {
		t.Error("a missing directory was taken")
	}
}
