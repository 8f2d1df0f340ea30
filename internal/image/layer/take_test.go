package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

var plenty = Most{Bytes: 1 << 20, Files: 100}

// overlay makes changes as an overlay keeps them.
func overlay(t *testing.T) string {
	t.Helper()
	from := tree(t, "dir/file", "content", "gone/", "", "link", "-> /nowhere")
	at := func(name string) string { return filepath.Join(from, name) }
	able := []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	for _, err := range []error{
		os.Link(at("dir/file"), at("linked")), os.Chown(at("dir/file"), 33, 44),
		os.Chmod(at("dir/file"), 0o755|os.ModeSetuid),
		unix.Setxattr(at("dir/file"), capability, able, 0), unix.Setxattr(at("dir/file"), "user.mine", []byte("kept"), 0),
		unix.Setxattr(at("dir"), "user.overlay.impure", []byte("y"), 0),
		unix.Setxattr(at("gone"), "user.overlay.opaque", []byte("y"), 0),
		unix.Mknod(at("white"), unix.S_IFCHR, 0), unix.Mkfifo(at("pipe"), 0o640),
		setTime(at("dir/file"), unix.Timespec{Sec: 1_700_000_000, Nsec: 5}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return from
}

// TestTake copies the changes of an overlay, with all that belongs to files, and nothing that does not.
func TestTake(t *testing.T) {
	needRoot(t)
	from, to := overlay(t), t.TempDir()
	if err := Take(t.Context(), from, to, plenty, false); err != nil {
		t.Fatal(err)
	}
	moved := t.TempDir()
	var archives [3]bytes.Buffer
	for i, dir := range []string{from, to, moved} {
		if dir == moved {
			if err := Take(t.Context(), from, moved, plenty, true); err != nil {
				t.Fatal(err)
			}
		}
		if err := Write(t.Context(), &archives[i], dir); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(archives[i].Bytes(), archives[0].Bytes()) {
			t.Errorf("the copy has another archive in %s", dir)
		}
	}
	if left := shown(t, from); left != "dir/ gone/" {
		t.Errorf("what was moved is still there: %s", left)
	}
	have := map[string]*tar.Header{}
	for r := tar.NewReader(&archives[1]); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		have[h.Name] = h
	}
	file := have["dir/file"]
	if file == nil || file.Mode != 0o4755 || file.Uid != 33 || file.Gid != 44 || file.ModTime.Unix() != 1_700_000_000 ||
		len(file.PAXRecords["SCHILY.xattr."+capability]) != capabilityBytes ||
		file.PAXRecords["SCHILY.xattr.user.mine"] != "kept" {
		t.Errorf("the file is %+v", file)
	}
	if linked := have["linked"]; linked == nil || linked.Linkname != "dir/file" {
		t.Errorf("the other name is %+v", linked)
	}
	for _, name := range []string{"gone/.wh..wh..opq", ".wh.white", "pipe", "link"} {
		if have[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if _, err := os.Lstat(filepath.Join(to, "socket")); err == nil {
		t.Error("there is a socket")
	}
	if all, err := attributesOf(filepath.Join(to, "dir")); err != nil || len(all) > 0 {
		t.Errorf("a directory has %q, %v", all, err)
	}
	if n, err := unix.Getxattr(filepath.Join(to, "dir"), "user.overlay.impure", nil); err == nil {
		t.Errorf("it has %d bytes of the overlay", n)
	}
}

// TestTakeRefuses: changes without bound, names of whiteouts, and a caller that has gone.
func TestTakeRefuses(t *testing.T) {
	needRoot(t)
	sparse := tree(t, "big", "")
	if err := os.Truncate(filepath.Join(sparse, "big"), 1<<40); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx  context.Context
		from string
		most Most
		code cove.Code
		says string
	}{
		{t.Context(), sparse, plenty, cove.TooLarge, "more than 1 MiB"},
		{t.Context(), tree(t, "a", "", "b", "", "c", ""), Most{Bytes: 9, Files: 2}, cove.TooLarge, "2 files"},
		{t.Context(), tree(t, "dir/.wh.etc", ""), plenty, cove.InvalidArgument, "dir/.wh.etc"},
		{gone, tree(t, "a", ""), plenty, cove.Canceled, "ended"},
	} {
		err := Take(test.ctx, test.from, t.TempDir(), test.most, false)
		if cove.ErrorCode(err) != test.code || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v, want %s: %s", err, test.code, test.says)
		}
	}
}

// TestTakeHoles: a large hole of a file is one of the copy, before, between and after its data.
func TestTakeHoles(t *testing.T) {
	needRoot(t)
	from, to := tree(t, "sparse", "", "short", "text"), t.TempDir()
	f, err := os.OpenFile(filepath.Join(from, "sparse"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{100 << 20, 300<<20 - 5} {
		if _, err := f.WriteAt([]byte("0123456789"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(1<<30), Take(t.Context(), from, to, Most{2 << 30, 9}, true)); err != nil {
		t.Fatal(err)
	}
	copied, err := os.Open(filepath.Join(to, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(copied.Fd()), &st); err != nil || st.Size != 1<<30 || st.Blocks*512 > 64<<20 {
		t.Errorf("it has %d bytes, %d on the disk, %v", st.Size, st.Blocks*512, err)
	}
	for _, at := range []int64{100 << 20, 300<<20 - 5} {
		text := make([]byte, 12)
		if _, err := copied.ReadAt(text, at-1); err != nil || string(text) != "\x000123456789\x00" {
			t.Errorf("at %d it has %q, %v", at, text, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(to, "short")); string(text) != "text" {
		t.Errorf("another file has %q, %v", text, err)
	}
}

// TestCopyCounts: what COPY copies is counted, one file for all of its names.
func TestCopyCounts(t *testing.T) {
	needRoot(t)
	from := tree(t, "big", "", "other", "")
	if err := errors.Join(os.Truncate(filepath.Join(from, "big"), 6<<30),
		os.Truncate(filepath.Join(from, "other"), 6<<30),
		os.Link(filepath.Join(from, "big"), filepath.Join(from, "linked"))); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"big", "linked"}, {"big", "other"}} {
		source, err := OpenStack(rootfs.Stack{from})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		c := Copy{From: source, Words: words, Dest: "/", Whole: true, Room: t.TempDir()}
		err = c.Into(t.Context(), t.TempDir(), rootfs.Stack{t.TempDir()})
		if (cove.ErrorCode(err) == cove.TooLarge) != (words[1] == "other") {
			t.Errorf("%q of 6 GiB each: %v", words, err)
		}
	}
}
