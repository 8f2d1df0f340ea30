package layer

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDigest: a context has another digest when a file of it has changed, unless it is left out.
func TestDigest(t *testing.T) {
	dir := tree(t, "a", "A", "d/b", "B", "skip/c", "C", "skip/keep", "K", "link", "-> a")
	digest := func() string {
		t.Helper()
		from, err := OpenContext(dir, "", []byte("skip\n!skip/keep\n"))
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		d, err := from.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	last := digest()
	for _, change := range []struct {
		name string
		do   func() error
		same bool
	}{
		{"nothing", func() error { return nil }, true},
		{"what is left out", func() error { return os.WriteFile(in("skip/c"), []byte("Z"), 0o600) }, true},
		{"what is not left out after all", func() error { return os.WriteFile(in("skip/keep"), []byte("Z"), 0o600) }, false},
		{"content", func() error { return os.WriteFile(in("d/b"), []byte("Z"), 0o600) }, false},
		{"a mode", func() error { return os.Chmod(in("a"), 0o700) }, false},
		{"a name", func() error { return os.Rename(in("a"), in("z")) }, false},
		{"a link", func() error { os.Remove(in("link")); return os.Symlink("z", in("link")) }, false},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		d := digest()
		if (d == last) != change.same {
			t.Errorf("with another %s the digest stays: %v", change.name, d == last)
		}
		last = d
	}
}

// TestContextBelow: the directory of a context is found within the one that is opened.
func TestContextBelow(t *testing.T) {
	dir := tree(t, "a", "A", "sub/b", "B", "out", "-> ..", "in", "-> sub")
	for below, file := range map[string]string{"": "a", ".": "a", "sub": "b", "in": "b", "out": "", "nothing": "",
		"a": ""} {
		from, err := OpenContext(dir, below, nil)
		if file == "" {
			if err == nil {
				from.Close()
				t.Errorf("%q is opened", below)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := from.ReadFile(file, 9); err != nil {
			t.Errorf("%q: %v", below, err)
		}
		from.Close()
	}
}
