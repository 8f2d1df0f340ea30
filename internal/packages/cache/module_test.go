//go:build linux

package cache

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/cove-sandbox/cove/internal/packages"
)

func archive(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, files[i+1])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// large is an archive with one file that is larger than a module may be.
func large(t *testing.T, name string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestSpeed)
	})
	w, err := z.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range maxModule/len(zeros) + 1 {
		w.Write(zeros)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestModules: an archive and a go.mod are stored if they hash to what go.sum would have, and nothing else is.
func TestModules(t *testing.T) {
	const mod, in = "module lab.test/x\n", "lab.test/x@v1.0.0/"
	good := archive(t, in+"go.mod", mod, in+"x.go", "package x\n")
	at := filepath.Join(t.TempDir(), "good.zip")
	if err := os.WriteFile(at, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	hash, err := dirhash.HashZip(at, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(mod))), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	bomb := large(t, in+"x.go")
	if err := os.WriteFile(at, []byte(bomb), 0o600); err != nil {
		t.Fatal(err)
	}
	ofBomb, err := dirhash.HashZip(at, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	zip, gomod := packages.Digest{GoZip: hash}, packages.Digest{GoMod: ofMod}
	for name, c := range map[string]struct {
		content string
		stated  packages.Digest
		stored  bool
	}{
		"an archive":           {good, zip, true},
		"a go.mod":             {mod, gomod, true},
		"another file in it":   {archive(t, in+"go.mod", mod, in+"x.go", "package y\n"), zip, false},
		"one more file":        {archive(t, in+"go.mod", mod, in+"x.go", "package x\n", "y", ""), zip, false},
		"no archive":           {mod, zip, false},
		"too large":            {bomb, packages.Digest{GoZip: ofBomb}, false},
		"half":                 {good[:len(good)/2], zip, false},
		"another go.mod":       {mod + " ", gomod, false},
		"the archive's go.mod": {good, gomod, false},
	} {
		f := open(t, t.TempDir(), 1<<30)
		w := f.Begin("u", int64(len(c.content)))
		io.WriteString(w, c.content)
		if stored := w.Commit(c.stated); stored != c.stored || (f.get(t, "u") == c.content) != c.stored {
			t.Errorf("%s: stored %v", name, stored)
		}
	}
}
