//go:build linux

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// listing describes an archive, one entry a line.
func listing(t *testing.T, archive []byte) []string {
	t.Helper()
	var all []string
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%c %o %s %s %s", h.Typeflag, h.Mode, h.Name, h.Linkname, data)))
	}
}

func tree(t *testing.T) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "etc/deep"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/file"), []byte("content"), 0o640),
		os.Link(filepath.Join(dir, "etc/file"), filepath.Join(dir, "etc/twin")),
		os.Symlink("../../../../etc/shadow", filepath.Join(dir, "etc/link")),
		unix.Mkfifo(filepath.Join(dir, "etc/fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "etc/socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestWriteTree(t *testing.T) {
	var b bytes.Buffer
	if err := writeTree(t.Context(), &b, rootfs.ViewOf(tree(t))); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"5 755 etc/", "5 755 etc/deep/", "6 600 etc/fifo", "0 640 etc/file  content",
		"2 777 etc/link ../../../../etc/shadow", "1 640 etc/twin etc/file",
	}
	if got := listing(t, b.Bytes()); !slices.Equal(got, want) {
		t.Errorf("archive:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWriteTreeHeedsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writeTree(ctx, io.Discard, rootfs.ViewOf(tree(t))); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestHostTreeIsTheSameEveryTime(t *testing.T) {
	h := rootfs.Host{Dirs: []string{"/usr"}, Links: []rootfs.Link{{Name: "/bin", Target: "usr/bin"}}}
	var one, two bytes.Buffer
	if err := errors.Join(writeHostTree(&one, h), writeHostTree(&two, h)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two archives of one tree differ")
	}
	got := listing(t, one.Bytes())
	for _, want := range []string{"5 1777 tmp/", "5 755 usr/", "2 777 bin usr/bin"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestFingerprint: whatever changes in a tree changes its name.
func TestFingerprint(t *testing.T) {
	root := tree(t)
	name := func() string {
		t.Helper()
		s, err := fingerprint(t.Context(), rootfs.ViewOf(root))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	last := name()
	if again := name(); again != last {
		t.Fatal("a tree at rest changes its name")
	}
	file := filepath.Join(root.Name(), "etc/file")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"content of the same size and time", func() error {
			return errors.Join(os.WriteFile(file, []byte("CONTENT"), 0o640),
				os.Chtimes(file, before.ModTime(), before.ModTime()))
		}},
		{"a mode", func() error { return os.Chmod(file, 0o644) }},
		{"a new file", func() error { return os.WriteFile(file+"2", nil, 0o644) }},
		{"a rename", func() error { return os.Rename(file+"2", file+"3") }},
		{"a link", func() error { return os.Symlink("x", file+"4") }},
		{"a removal", func() error { return os.Remove(file + "4") }},
	} {
		time.Sleep(10 * time.Millisecond) // sleep: the grain of a file system's clock
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		now := name()
		if now == last {
			t.Errorf("%s is not noticed", c.what)
		}
		last = now
	}
}
