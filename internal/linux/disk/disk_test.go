//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a file system needs root")
	}
	if err := Try(t.Context(), t.TempDir()); cove.ErrorCode(err) == cove.RuntimeMissing {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// newImage makes an image and mounts it, and looks after the test for what is left.
func newImage(t *testing.T, s Size) Image {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	i := Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk")}
	if err := i.Make(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := i.Mount(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Unmount(); err != nil {
			t.Error(err)
		}
		gone(t, i)
	})
	return i
}

// TestRest: an image that rests has everything in its file, which no device has any more, and says what it holds.
func TestRest(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	if err := os.WriteFile(filepath.Join(i.Dir, "work"), bytes.Repeat([]byte("work\n"), 1<<20/5), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.Rest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if is, err := i.Mounted(); is || err != nil {
		t.Errorf("mounted: %v, %v", is, err)
	}
	file, err := os.Open(i.File)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if device, err := attached(file); device != nil || err != nil {
		t.Errorf("a device has it: %v, %v", device, err)
	}
	rests, err := i.UsedAtRest()
	if err != nil {
		t.Fatal(err)
	}
	copied := Image{File: filepath.Join(t.TempDir(), "image")}
	copied.Dir = filepath.Join(filepath.Dir(copied.File), "disk")
	if out, err := exec.Command("cp", "--sparse=always", i.File, copied.File).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	if err := errors.Join(copied.Mount(t.Context()), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	defer gone(t, copied)
	defer copied.Unmount()
	if info, err := os.Stat(filepath.Join(copied.Dir, "work")); err != nil || info.Size() != 1<<20/5*5 {
		t.Errorf("the copy has %v, %v", info, err)
	}
	used, err := i.Used()
	if err != nil || used.Bytes != rests.Bytes || used.Inodes != rests.Inodes || used.InodesLeft != rests.InodesLeft {
		t.Errorf("at rest %+v, mounted %+v, %v", rests, used, err)
	}
}

// TestQuiet: what was read while something wrote is read again, and not for ever.
func TestQuiet(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	for writes, want := range map[int]int{0: 1, 1: 2, 9: 3} {
		n := 0
		err := i.Quiet(func() error {
			if n++; n > writes {
				return nil
			}
			return errors.Join(os.WriteFile(filepath.Join(i.Dir, "f"), []byte{byte(n)}, 0o600), i.sync())
		})
		if n != want || (err != nil) != (writes == 9) || err != nil && cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("%d writes: read %d times, %v", writes, n, err)
		}
	}
}

// gone waits for the end of an image's device, which ends after its last mount.
func gone(t *testing.T, i Image) {
	t.Helper()
	if err := i.Released(context.Background()); err != nil {
		t.Error(err)
	}
}

// fill writes until it cannot, and returns the bytes.
func fill(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var total int64
	chunk := bytes.Repeat([]byte{'x'}, 1<<20)
	for total < 1<<30 {
		n, err := f.Write(chunk)
		total += int64(n)
		if errors.Is(err, unix.ENOSPC) {
			return total
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("there is no limit")
	return total
}

func TestLimits(t *testing.T) {
	for _, s := range []Size{{1 << 20, 64}, {16 << 20, 1000}, {64 << 20, 20_000}, {200 << 20, 500}} {
		t.Run(fmt.Sprint(s.Bytes>>20), func(t *testing.T) {
			i := newImage(t, s)
			used, err := i.Used()
			if err != nil || used.Full() {
				t.Fatalf("%+v, %v", used, err)
			}
			if most := s.Bytes + s.Bytes/20 + 4<<20; used.Room < s.Bytes || used.Room > most+journal {
				t.Errorf("%d bytes can be stored, of %d", used.Room, s.Bytes)
			}
			if used.InodesLeft < s.Inodes || used.InodesLeft > s.Inodes+s.Inodes/4+300 {
				t.Errorf("%d files can be made, of %d", used.InodesLeft, s.Inodes)
			}
			if n := fill(t, filepath.Join(i.Dir, "a")); n < s.Bytes-s.Bytes/50-1<<20 || n > s.Bytes+s.Bytes/20+4<<20 {
				t.Errorf("%d bytes were written, of %d", n, s.Bytes)
			}
			if used, err := i.Used(); err != nil || !used.Full() {
				t.Errorf("it is not full: %+v, %v", used, err)
			}
			os.Remove(filepath.Join(i.Dir, "a"))
			made := int64(0)
			if s.Inodes > 2000 {
				return
			}
			for made < 2*s.Inodes+1000 && os.Mkdir(filepath.Join(i.Dir, strconv.FormatInt(made, 10)), 0o700) == nil {
				made++
			}
			if made < s.Inodes/2 || made > s.Inodes+s.Inodes/4+300 {
				t.Errorf("%d directories were made, of %d", made, s.Inodes)
			}
		})
	}
}

func TestSparse(t *testing.T) {
	i := newImage(t, Size{1 << 30, 10_000})
	at := func() int64 {
		t.Helper()
		unix.Sync()
		used, err := i.Used()
		if err != nil {
			t.Fatal(err)
		}
		return used.Host
	}
	empty := at()
	if empty > 4<<20 {
		t.Errorf("an empty disk takes %d bytes", empty)
	}
	if err := os.WriteFile(filepath.Join(i.Dir, "x"), make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := at(); n < 32<<20 {
		t.Errorf("the image holds %d bytes", n)
	}
	os.Remove(filepath.Join(i.Dir, "x"))
	for range 50 { // each look writes out what is to be discarded
		if at() < empty+16<<20 {
			return
		}
	}
	t.Errorf("what is removed goes on taking room: %d bytes", at())
}

// TestOneDevice has several callers mount one image at once, and again.
func TestOneDevice(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	if err := os.WriteFile(filepath.Join(i.Dir, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// As a server in another mount namespace does.
	other := Image{File: i.File, Dir: filepath.Join(filepath.Dir(i.Dir), "other")}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := errors.Join(i.Mount(t.Context()), other.Mount(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(filepath.Join(other.Dir, "kept")); err != nil {
		t.Error(err)
	}
	if a, b := device(t, i.Dir), device(t, other.Dir); a != b {
		t.Errorf("one image is two file systems: %d and %d", a, b)
	}
	if err := other.Unmount(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(i.Unmount(), i.Mount(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(i.Dir, "kept")); err != nil {
		t.Error(err)
	}
}

func device(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev
}

// TestRenamed moves the directory above a mounted image.
func TestRenamed(t *testing.T) {
	needRoot(t)
	top := t.TempDir()
	was, is := filepath.Join(top, "was"), filepath.Join(top, "is")
	if err := os.Mkdir(was, 0o700); err != nil {
		t.Fatal(err)
	}
	i := Image{File: filepath.Join(was, "image"), Dir: filepath.Join(was, "disk")}
	if err := errors.Join(i.Make(t.Context(), Size{1 << 20, 64}), i.Mount(t.Context()), os.Rename(was, is)); err != nil {
		t.Fatal(err)
	}
	i = Image{File: filepath.Join(is, "image"), Dir: filepath.Join(is, "disk")}
	if at, err := point(i.Dir); err != nil || at != above {
		t.Errorf("it is not mounted: %d, %v", at, err)
	}
	if err := errors.Join(i.Unmount(), i.Unmount(), i.Mount(t.Context()), i.Unmount()); err != nil {
		t.Error(err)
	}
	gone(t, i)
}

// TestCopiedNamespace has the device go although another mount namespace was copied while the image was mounted, as
// those of prewarmed guests are.
func TestCopiedNamespace(t *testing.T) {
	i := newImage(t, Size{1 << 20, 64})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--user", "--mount", "--propagation", "unchanged",
		"sh", "-c", "echo; exec sleep 60")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 1))
	if err := i.Unmount(); err != nil {
		t.Fatal(err)
	}
	gone(t, i)
	cancel()
	cmd.Wait()
}

// TestResizeManyInodes: a small disk with the inodes of a large one has small groups.
func TestResizeManyInodes(t *testing.T) {
	i := newImage(t, Size{32 << 20, 500_000})
	err := errors.Join(i.Unmount(), i.Released(t.Context()))
	if err = errors.Join(err, i.Resize(t.Context(), 128<<20), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	used, err := i.Used()
	if err != nil || used.Room < 120<<20 || used.Room > 160<<20 {
		t.Errorf("it grew to %d MiB, %v", used.Room>>20, err)
	}
}

func TestResize(t *testing.T) {
	i := newImage(t, Size{32 << 20, 1000})
	content := bytes.Repeat([]byte("cove"), 5<<20)
	if err := os.WriteFile(filepath.Join(i.Dir, "x"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	room := func() int64 {
		t.Helper()
		used, err := i.Used()
		if err != nil {
			t.Fatal(err)
		}
		return used.Room
	}
	switch err := i.Resize(t.Context(), 256<<20); {
	case cove.ErrorCode(err) == cove.Conflict && !mayGrow(t):
		t.Logf("not while it is mounted: %v", err)
		if err := i.Unmount(); err != nil {
			t.Fatal(err)
		}
		gone(t, i)
		if err := errors.Join(i.Resize(t.Context(), 256<<20), i.Mount(t.Context())); err != nil {
			t.Fatal(err)
		}
	case err != nil:
		t.Fatal(err)
	}
	if n := room(); n < 230<<20 || n > 245<<20 {
		t.Errorf("it grew to %d MiB", n>>20)
	}
	if err := i.Resize(t.Context(), 64<<20); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("shrinking while mounted: %v", err)
	}
	if err := i.Unmount(); err != nil {
		t.Fatal(err)
	}
	gone(t, i)
	if err := i.Resize(t.Context(), 4<<20); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("shrinking below the content: %v", err)
	}
	if err := errors.Join(i.Resize(t.Context(), 64<<20), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := room(); n < 40<<20 || n > 55<<20 {
		t.Errorf("it shrank to %d MiB", n>>20)
	}
	if got, err := os.ReadFile(filepath.Join(i.Dir, "x")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("its content has changed: %v", err)
	}
}

// TestResizeCanceled: a caller that has gone leaves no file system that is larger than its device.
func TestResizeCanceled(t *testing.T) {
	i := newImage(t, Size{32 << 20, 1000})
	before, err := os.Stat(i.File)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.Resize(ctx, 128<<20); err != nil && (mayGrow(t) || cove.ErrorCode(err) != cove.Conflict) {
		t.Errorf("a caller that has gone: %v", err)
	}
	if after, err := os.Stat(i.File); err != nil || after.Size() <= before.Size() {
		t.Errorf("the image was cut: %v, %v", after.Size(), err)
	}
	if err := errors.Join(i.Unmount(), i.Released(t.Context()), i.Resize(ctx, 32<<20)); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(i.File); err != nil || after.Size() > before.Size()+1<<20 {
		t.Errorf("the image stays large: %v, %v", after.Size(), err)
	}
}

// TestExplain: only what e2fsck has found and cannot repair is damage.
func TestExplain(t *testing.T) {
	failed := errors.New("it failed")
	for name, c := range map[string]struct {
		outcome outcome
		want    cove.Code
	}{
		"succeeded":    {outcome{"e2fsck", nil, 0, ""}, ""},
		"corrected":    {outcome{"e2fsck", failed, 1, ""}, ""},
		"to restart":   {outcome{"e2fsck", failed, 3, ""}, ""},
		"damaged":      {outcome{"e2fsck", failed, 4, ""}, cove.Corrupt},
		"partly":       {outcome{"e2fsck", failed, 5, ""}, cove.Corrupt},
		"lost":         {outcome{"e2fsck", failed, 8, "Bad magic number in super-block"}, cove.Corrupt},
		"operational":  {outcome{"e2fsck", failed, 8, "cannot open it"}, cove.Unavailable},
		"both":         {outcome{"e2fsck", failed, 12, ""}, cove.Unavailable},
		"killed":       {outcome{"e2fsck", failed, -1, ""}, cove.Unavailable},
		"full":         {outcome{"e2fsck", failed, 12, "No space left on device"}, cove.StorageFull},
		"other's full": {outcome{"cp", failed, 1, "No space left on device"}, cove.StorageFull},
		"other's":      {outcome{"cp", failed, 1, "Input/output error"}, cove.Internal},
		"not allowed":  {outcome{"resize2fs", failed, 1, "Permission denied to resize"}, cove.Conflict},
	} {
		err := explain(t.Context(), c.outcome, "x")
		if (err == nil) != (c.want == "") || err != nil && cove.ErrorCode(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKilledBetweenMounts: what was mounted on itself alone becomes shared.
func TestKilledBetweenMounts(t *testing.T) {
	i := newImage(t, Size{1 << 20, 64})
	err := errors.Join(i.Unmount(), unix.Mount(i.Dir, i.Dir, "", unix.MS_BIND, ""),
		unix.Mount("", i.Dir, "", unix.MS_PRIVATE, ""), i.Mount(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, " "+i.Dir+" ") && !strings.Contains(line, " shared:") {
			t.Errorf("it is not shared: %s", line)
		}
	}
}

// TestChangeHoldsLock: a program that changes a file system has the lock of its image.
func TestChangeHoldsLock(t *testing.T) {
	i := newImage(t, Size{1 << 20, 64})
	o, err := i.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer o.release()
	if err := i.tool(t.Context(), o.lock, "flock", "--nonblock", "--exclusive", "3"); err != nil {
		t.Error(err)
	}
	if err := i.tool(t.Context(), nil, "flock", "--nonblock", filepath.Dir(i.File), "true"); err == nil {
		t.Error("another process has the lock too")
	}
}

// mayGrow reports whether the kernel lets this process change a mounted file system.
func mayGrow(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestRefusals(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	i := Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk")}
	if err := i.Mount(t.Context()); err == nil {
		t.Error("an image that is not there was mounted")
	}
	if err := os.WriteFile(i.File, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.Mount(t.Context()); err == nil {
		t.Error("zeros were mounted")
	}
	if at, err := point(i.Dir); err != nil || at != plain {
		t.Errorf("something is left mounted: %d, %v", at, err)
	}
	gone(t, i)
	if err := i.Make(t.Context(), Size{1 << 20, 64}); err == nil {
		t.Error("an image took the place of a file")
	}
	if err := i.Unmount(); err != nil {
		t.Error(err)
	}
}

func TestLength(t *testing.T) {
	for _, s := range []Size{{0, 0}, {1, 1}, {1 << 20, 64}, {4 << 30, 500_000}, {1 << 40, 2_000_000}} {
		n, least := length(s), s.Bytes+s.Inodes*inode+journal
		if n%block != 0 || n < least || n > least+s.Bytes/40+32<<20 {
			t.Errorf("%+v: %d", s, n)
		}
	}
}

// TestDamaged: a damaged image is not mounted, and keeps its bytes; the error names the file and what to do.
func TestDamaged(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	if err := errors.Join(i.Unmount(), i.Released(t.Context())); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(i.File, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte{0xa5}, 1<<20)
	_, err = f.WriteAt(noise, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(i.File)
	if err != nil {
		t.Fatal(err)
	}
	err = i.Mount(t.Context())
	if cove.ErrorCode(err) != cove.Corrupt || !strings.Contains(err.Error(), i.File) ||
		!strings.Contains(cove.ErrorHint(err), "e2fsck") {
		t.Errorf("%v (%s)", err, cove.ErrorHint(err))
	}
	if at, err := point(i.Dir); err == nil && at == above {
		t.Error("it is mounted")
	}
	gone(t, i)
	if after, err := os.ReadFile(i.File); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the damaged image has changed: %v", err)
	}
}

// TestUnclean: an image with a note of an error is repaired before it is mounted.
func TestUnclean(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	err := os.WriteFile(filepath.Join(i.Dir, "kept"), []byte("x"), 0o600)
	if err = errors.Join(err, i.Unmount(), i.Released(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := i.tool(t.Context(), nil, "debugfs", "-w", "-R", "set_super_value state 2", i.File); err != nil {
		t.Fatal(err)
	}
	if err := i.Mount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(i.Dir, "kept")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(i.Unmount(), i.Released(t.Context())); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(i.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := sound(f); err != nil || !ok {
		t.Errorf("it was mounted with its errors: %v", err)
	}
}

// TestFullHost: on a full disk of the host a write fails, what was there before stays, and the image can be written to
// again once there is room.
func TestFullHost(t *testing.T) {
	needRoot(t)
	below := newImage(t, Size{48 << 20, 100}) // the host's disk
	dir, ballast := filepath.Join(below.Dir, "state"), filepath.Join(below.Dir, "ballast")
	if err := errors.Join(os.Mkdir(dir, 0o700), writeSynced(ballast, 16<<20)); err != nil {
		t.Fatal(err)
	}
	i := Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk")}
	if err := errors.Join(i.Make(t.Context(), Size{256 << 20, 1000}), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Unmount(); err != nil {
			t.Error(err)
		}
		gone(t, i)
	})
	if err := writeSynced(filepath.Join(i.Dir, "before"), 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := writeSynced(filepath.Join(i.Dir, "large"), 128<<20); err == nil {
		t.Error("a write that has no room on the host's disk succeeds")
	} else {
		t.Logf("a write that has no room: %v", err)
	}
	content := func() {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(i.Dir, "before"))
		if err != nil || len(got) != 8<<20 || bytes.Count(got, []byte{'x'}) != len(got) {
			t.Errorf("what was there before has changed: %d bytes, %v", len(got), err)
		}
	}
	content()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := i.Mount(t.Context()); err != nil {
		t.Fatal(err)
	}
	content()
	if err := writeSynced(filepath.Join(i.Dir, "after"), 8<<20); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// writeSynced writes a file, and waits until the disk has it.
func writeSynced(path string, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Repeat([]byte{'x'}, size))
	return errors.Join(err, f.Sync(), f.Close())
}

// TestStoppedWriting: an image to which the kernel writes no more is repaired when it is mounted again, but not while
// another mount of it is in use.
func TestStoppedWriting(t *testing.T) {
	i := newImage(t, Size{16 << 20, 100})
	other := filepath.Join(filepath.Dir(i.Dir), "sandbox") // as a sandbox has it
	if err := errors.Join(os.Mkdir(other, 0o700), unix.Mount(i.Dir, other, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	if err := writeSynced(filepath.Join(i.Dir, "kept"), 1); err != nil {
		t.Fatal(err)
	}
	// errors=remount-ro does the same; the number is any.
	if err := os.WriteFile("/sys/fs/ext4/"+loopOf(t, i)+"/trigger_fs_error", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if stopped, err := i.failed(); err != nil || !stopped {
		t.Fatalf("the kernel writes after an error: %v", err)
	}
	if err := i.Mount(t.Context()); err != nil {
		t.Errorf("while a sandbox has it: %v", err)
	}
	if _, err := os.Stat(filepath.Join(i.Dir, "kept")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(unix.Unmount(other, 0), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(i.Dir, "kept")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(i.Dir, "more"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
}

// loopOf returns the name of an image's device.
func loopOf(t *testing.T, i Image) string {
	t.Helper()
	f, err := os.Open(i.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	device, err := attached(f)
	if err != nil || device == nil {
		t.Fatalf("no device: %v", err)
	}
	defer device.Close()
	return filepath.Base(device.Name())
}
