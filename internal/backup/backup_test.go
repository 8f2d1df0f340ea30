//go:build linux

package backup

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// home makes a directory with a file of each kind.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	must(os.MkdirAll(in("tree/closed/deep"), 0o755))
	must(os.WriteFile(in("tree/closed/deep/file"), bytes.Repeat([]byte("content "), 50_000), 0o640))
	must(os.Link(in("tree/closed/deep/file"), in("tree/another name")))
	must(os.Symlink("../outside/"+strings.Repeat("long/", 40), in("tree/link")))
	must(os.WriteFile(in("tree/program"), []byte("x"), 0o755))
	must(unix.Mkfifo(in("tree/pipe"), 0o600))
	holes, err := os.Create(in("tree/holes"))
	must(err)
	for _, at := range []int64{1 << 20, 5 << 30} {
		_, err = holes.WriteAt([]byte("data"), at)
		must(err)
	}
	must(holes.Truncate(6 << 30))
	must(holes.Close())
	empty, err := os.Create(in("tree/hole"))
	must(err)
	must(empty.Truncate(1 << 30))
	must(empty.Close())
	must(unix.Setxattr(in("tree/program"), "user.kept", []byte{0, 1, '='}, 0))
	if os.Geteuid() == 0 {
		must(unix.Mknod(in("tree/removed"), unix.S_IFCHR, 0)) // as overlayfs has it
		must(os.Lchown(in("tree/link"), 12, 34))
		must(os.Chown(in("tree/program"), 0x70000001, 0x70000002))
		must(unix.Setxattr(in("tree/program"), "security.capability", append([]byte{1, 0, 0, 2}, make([]byte, 16)...), 0))
	}
	must(os.Chmod(in("tree/program"), 0o755|fs.ModeSetuid|fs.ModeSetgid))
	must(os.WriteFile(in("tree/left out"), nil, 0o600))
	must(os.WriteFile(in(Database), []byte("records"), 0o600))
	must(os.Chtimes(in("tree/program"), time.Unix(12345, 6789), time.Unix(12345, 6789)))
	must(os.Chmod(in("tree/closed"), 0o500))
	t.Cleanup(func() { os.Chmod(in("tree/closed"), 0o700) })
	return dir
}

// described returns what is to be kept of each file.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		content := ""
		switch {
		case info.Mode().IsRegular() && info.Size() < 1<<20:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(text)
		case info.Mode().IsRegular():
			content = fmt.Sprint("takes ", st.Blocks, at(t, path, 1<<20), at(t, path, 5<<30))
		case info.Mode()&fs.ModeSymlink != 0:
			content, _ = os.Readlink(path)
		}
		when, links := info.ModTime(), st.Nlink
		if info.IsDir() {
			links = 0
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			when = time.Time{}
		}
		attributes := map[string]string{}
		for _, name := range []string{"user.kept", "security.capability"} {
			value := make([]byte, 100)
			if n, err := unix.Lgetxattr(path, name, value); err == nil {
				attributes[name] = string(value[:n])
			}
		}
		name, _ := filepath.Rel(dir, path)
		size := info.Size()
		if info.IsDir() {
			size = 0
		}
		all[name] = fmt.Sprintf("%v %d:%d %d %d %x %v %v %q", info.Mode(), st.Uid, st.Gid, size, links, st.Rdev, when.UTC(),
			attributes, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func at(t *testing.T, path string, offset int64) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4)
	f.ReadAt(b, offset)
	return string(b)
}

func write(t *testing.T, home, path string, trees ...string) {
	t.Helper()
	w, err := Create(path, About{Cove: "1.2.3", Schema: 15})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range trees {
		if err := w.Add(t.Context(), home, []string{name}, []string{"tree/left out"}, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryKindOfFile: what is restored is what was there, also where a tree was read twice.
func TestEveryKindOfFile(t *testing.T) {
	from, to := home(t), t.TempDir()
	path := filepath.Join(t.TempDir(), "b")
	write(t, from, path, "tree", "tree", Database)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 || info.Size() > 64<<10 {
		t.Errorf("%v, %v", info, err)
	}
	about, err := Restore(t.Context(), path, to, 15)
	if err != nil || about.Cove != "1.2.3" {
		t.Fatal(about, err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(to, "tree/closed"), 0o700) })
	want, got := described(t, from), described(t, to)
	delete(want, "tree/left out")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s:\n%.300s, want\n%.300s", name, got[name], want[name])
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("more than there was: %v", got)
	}
}

// TestWrongBackups: a file that is no whole backup leaves nothing in the home, and is told for what it is.
func TestWrongBackups(t *testing.T) {
	from, dir := home(t), t.TempDir()
	path := filepath.Join(dir, "b")
	write(t, from, path, "tree", Database)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type wrong struct {
		data []byte
		code cove.Code
		says string
	}
	all := map[string]wrong{
		"text":      {[]byte(strings.Repeat("this is a text\n", 100)), cove.InvalidArgument, "no backup of Cove's"},
		"empty":     {nil, cove.InvalidArgument, "no backup of Cove's"},
		"too short": {whole[:3], cove.InvalidArgument, "no backup"},
	}
	for i := range 8 {
		n := len(whole) * (i + 1) / 9
		all[fmt.Sprint("cut at ", n)] = wrong{whole[:n], cove.Corrupt, "its end is not there"}
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		all[fmt.Sprint("damaged at ", n)] = wrong{damaged, cove.Corrupt, ""}
	}
	all["without its last byte"] = wrong{whole[:len(whole)-1], cove.Corrupt, ""}
	all["with more"] = wrong{append(bytes.Clone(whole), 0), cove.Corrupt, ""}
	for name, w := range all {
		to := t.TempDir()
		if err := os.WriteFile(path, w.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(t.Context(), path, to, 15)
		if cove.ErrorCode(err) != w.code || !strings.Contains(err.Error(), w.says) || cove.ErrorHint(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, cove.ErrorHint(err))
		}
		if left, _ := os.ReadDir(to); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), path, t.TempDir(), 14); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("of a newer version: %v", err)
	}
	if err := fits(About{Format: 1, Root: true}, 1, false); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("of root: %v", err)
	}
	// The rest of a restoration that was killed goes.
	to := t.TempDir()
	if err := os.MkdirAll(filepath.Join(to, Staging, "tree"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), path, to, 15); err != nil {
		t.Error(err)
	}
}

// TestFailedBackup: one that is ended, or was killed, leaves the older one, and nothing else once the next is made.
func TestFailedBackup(t *testing.T) {
	from, dir := home(t), t.TempDir()
	path := filepath.Join(dir, "b")
	write(t, from, path, Database)
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Create(path, About{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Add(ctx, from, []string{"tree"}, nil, false); cove.ErrorCode(err) != cove.Canceled {
		t.Error(err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, was) {
		t.Error("the older one has changed", err)
	}
	w.temp.Close() // as its process dies
	write(t, from, path, Database)
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
