package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

func importRoot(t testing.TB, s *Store, name, body string) Image {
	t.Helper()
	path := writeFile(t, filepath.Join(t.TempDir(), "root.tar"), tarOf(t, item{name: "bin/sh", body: body}))
	img, err := s.Import(t.Context(), "tar:"+path, name, ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestListAndRemove(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	if all, err := s.List(ctx); err != nil || len(all) != 0 {
		t.Fatalf("an empty store lists %v, %v", all, err)
	}
	one := importRoot(t, s, "one", "1")
	importRoot(t, s, "team/again:2", "1") // one file with two names
	two := importRoot(t, s, "two", "22")
	all, err := s.List(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("listed %v, %v", all, err)
	}
	for _, img := range all {
		want := "[one:latest team/again:2]"
		if img.Digest == two.Digest {
			want = "[two:latest]"
		}
		if fmt.Sprint(img.Names) != want || img.Files != 1 || img.Size != int64(len(want))/13 && img.Size > 2 ||
			!strings.HasPrefix(img.Source, "tar:/") {
			t.Errorf("listed %+v, want the names %s", img, want)
		}
	}

	removed, err := s.Remove(ctx, "one")
	if err != nil || len(removed.Images) != 0 || fmt.Sprint(removed.Names) != "[one:latest]" {
		t.Errorf("one of two names: %+v, %v", removed, err)
	}
	if _, err := s.Resolve(ctx, "one"); cove.ErrorCode(err) != cove.ImageMissing {
		t.Errorf("the name stayed: %v", err)
	}
	if _, err := s.Remove(ctx, "one"); cove.ErrorCode(err) != cove.ImageMissing {
		t.Errorf("removed twice: %v", err)
	}
	removed, err = s.Remove(ctx, "team/again:2")
	if err != nil || len(removed.Images) != 1 || removed.Images[0].Digest != one.Digest || removed.Freed != 1 {
		t.Errorf("the last name: %+v, %v", removed, err)
	}
	removed, err = s.Remove(ctx, two.Digest[:19])
	if err != nil || len(removed.Images) != 1 || fmt.Sprint(removed.Names) != "[two:latest]" {
		t.Errorf("by digest: %+v, %v", removed, err)
	}
	for _, ref := range []string{"host", "dir:/srv", "--all"} {
		if _, err := s.Remove(ctx, ref); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("remove %q: %v", ref, err)
		}
	}
	wantNoLitter(t, s, 0)
	if locks, _ := os.ReadDir(filepath.Join(s.dir, "locks")); len(locks) != 0 {
		t.Errorf("locks are left: %v", locks)
	}
}

func TestHeldImagesStay(t *testing.T) {
	s := newStore(t)
	ctx := t.Context()
	img := importRoot(t, s, "base", "x")
	path := filepath.Join(s.imageDir(img.Digest), "rootfs", "bin", "sh")
	other := storeAt(t, s.dir) // a separate holder of locks, like another process
	release, err := other.Hold(ctx, img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	release2, err := other.Hold(ctx, img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	release2()
	for _, ref := range []string{"base", img.Digest} {
		if _, err := s.Remove(ctx, ref); cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("remove %s: %v", ref, err)
		}
	}
	if _, err := s.Resolve(ctx, "base"); err != nil {
		t.Errorf("the name was lost: %v", err)
	}
	importRoot(t, s, "second", "x") // added and removed while the other is held
	if _, err := s.Remove(ctx, "second"); err != nil {
		t.Errorf("one of two names: %v", err)
	}
	if err := s.update(ctx, func(i *index) error { i.drop(img.Digest); return nil }); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Prune(ctx, nil); err != nil || len(removed.Images) != 0 {
		t.Errorf("pruned %+v, %v", removed, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	release()
	if removed, err := s.Prune(ctx, func(d string) bool {
		return d == img.Digest
	}); err != nil || len(removed.Images) != 0 {
		t.Errorf("pruned what is said to be in use: %+v, %v", removed, err)
	}
	if removed, err := s.Prune(ctx, func(string) bool { return false }); err != nil || len(removed.Images) != 1 {
		t.Errorf("pruned %+v, %v", removed, err)
	}
	for _, digest := range []string{img.Digest, "sha256:" + zeros} {
		if _, err := s.Hold(ctx, digest); cove.ErrorCode(err) != cove.ImageMissing {
			t.Errorf("hold %s: %v", digest, err)
		}
	}
	if _, err := s.Hold(ctx, "sha256:../../../etc"); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("hold a path: %v", err)
	}
}

// TestConcurrently pulls, resolves, holds, removes and prunes a few images from several stores of one directory, and
// checks every held root filesystem.
func TestConcurrently(t *testing.T) {
	host := startRegistry(t, nil)
	refs := []string{host + "/a:1", host + "/b:1", host + "/a:2"} // the last is the first under another name
	for i, ref := range refs {
		push(t, ref,
			imageOf(t, runtime.GOARCH, append(baseLayers(t), layerOf(t, item{name: "which", body: fmt.Sprint(i % 2)}))...))
	}
	dir := filepath.Join(t.TempDir(), "images")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all sync.WaitGroup
	rounds := 15
	var looked [3]int
	for w := range 3 {
		s := storeAt(t, dir)
		all.Go(func() {
			for i := range rounds {
				ref := refs[(w+i)%len(refs)]
				if _, err := s.Pull(ctx, ref, PullOptions{}); err != nil && !gone(err) {
					t.Errorf("pull: %v", err)
				}
				looked[w] += look(t, ctx, s, ref)
				switch i % 3 {
				case 0:
					if _, err := s.Remove(ctx, ref); err != nil && !gone(err) {
						t.Errorf("remove: %v", err)
					}
				case 1:
					if _, err := s.Prune(ctx, nil); err != nil {
						t.Errorf("prune: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	if looked[0]+looked[1]+looked[2] < rounds {
		t.Errorf("only %v images could be looked at", looked)
	}
	s := storeAt(t, dir)
	for _, ref := range refs {
		if _, err := s.Remove(ctx, ref); err != nil && !gone(err) {
			t.Error(err)
		}
	}
	wantNoLitter(t, s, 0)
}

// gone reports the errors that races between users may cause.
func gone(err error) bool {
	return cove.ErrorCode(err) == cove.ImageMissing || cove.ErrorCode(err) == cove.Conflict
}

// look resolves and holds an image and checks that it is whole.
func look(t *testing.T, ctx context.Context, s *Store, ref string) int {
	r, err := s.Resolve(ctx, ref)
	if err != nil {
		if !gone(err) {
			t.Errorf("resolve: %v", err)
		}
		return 0
	}
	release, err := s.Hold(ctx, r.Digest)
	if err != nil {
		if !gone(err) {
			t.Errorf("hold: %v", err)
		}
		return 0
	}
	defer release()
	for name, want := range wantTree {
		if data, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil || string(data) != want {
			t.Errorf("%s of a held image is %q, %v", name, data, err)
		}
	}
	return 1
}

func TestDamagedState(t *testing.T) {
	ctx := t.Context()
	t.Run("index", func(t *testing.T) {
		for name, data := range map[string]string{"no JSON": "{", "empty": "", "another version": `{"version":99}`} {
			s := newStore(t)
			importRoot(t, s, "base", "x")
			writeFile(t, s.indexPath(), []byte(data))
			for what, err := range map[string]error{
				"resolve": second(s.Resolve(ctx, "base")), "list": second(s.List(ctx)), "prune": second(s.Prune(ctx, nil)),
				"remove": second(s.Remove(ctx, "base")),
				"import": second(s.Import(ctx, "tar:"+writeFile(t, filepath.Join(t.TempDir(), "r.tar"), tarOf(t, rootItems...)),
					"x", ImportOptions{})),
			} {
				if cove.ErrorCode(err) != cove.Corrupt || cove.ErrorHint(err) == "" {
					t.Errorf("%s, %s: %v", name, what, err)
				}
			}
			if got, _ := os.ReadFile(s.indexPath()); string(got) != data {
				t.Errorf("%s: the index was overwritten", name)
			}
			if _, err := s.Resolve(ctx, "host"); err != nil {
				t.Errorf("%s: host: %v", name, err)
			}
			if err := os.Remove(s.indexPath()); err != nil {
				t.Fatal(err)
			}
			if all, err := s.List(ctx); err != nil || len(all) == 0 {
				t.Errorf("%s: after moving it away: %v, %v", name, all, err)
			}
		}
	})
	t.Run("record", func(t *testing.T) {
		s := newStore(t)
		img := importRoot(t, s, "base", "x")
		writeFile(t, filepath.Join(s.imageDir(img.Digest), recordName), []byte("{"))
		s = storeAt(t, s.dir)
		_, err := s.Resolve(ctx, "base")
		if cove.ErrorCode(err) != cove.Corrupt || !strings.Contains(cove.ErrorHint(err), "cove image remove") {
			t.Errorf("%v", err)
		}
		if _, err := s.Remove(ctx, img.Digest); err != nil {
			t.Errorf("what the hint says fails: %v", err)
		}
		importRoot(t, s, "base", "x")
		if _, err := s.Resolve(ctx, "base"); err != nil {
			t.Error(err)
		}
	})
	t.Run("files gone", func(t *testing.T) {
		s := newStore(t)
		img := importRoot(t, s, "base", "x")
		if err := os.RemoveAll(s.imageDir(img.Digest)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Resolve(ctx, "base"); cove.ErrorCode(err) != cove.ImageMissing {
			t.Errorf("%v", err)
		}
		importRoot(t, s, "other", "y")
		removed, err := s.Prune(ctx, nil)
		if err != nil || fmt.Sprint(removed.Names) != "[base:latest]" {
			t.Errorf("pruned %+v, %v", removed, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestSweep removes the remains of a dead process, and keeps the work of a living one.
func TestSweep(t *testing.T) {
	s := newStore(t)
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	living, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dead.dir, "rootfs", "deep", "file"), []byte("12345"))
	if err := os.Chmod(filepath.Join(dead.dir, "rootfs", "deep"), 0o555); err != nil {
		t.Fatal(err)
	}
	dead.lock.Close() // as the kernel does
	if err := os.Mkdir(filepath.Join(s.dir, "tmp", "without-lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.dir, ".index.json.123"), []byte("half"))

	s2 := storeAt(t, s.dir) // Open sweeps
	if _, err := os.Stat(living.dir); err != nil {
		t.Errorf("a living one was removed: %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, ".index.json.123")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an index is left: %v", err)
	}
	if err := living.discard(); err != nil {
		t.Error(err)
	}
	wantNoLitter(t, s2, 0)
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Open(path, filelock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Open(path, filelock.Shared); err != filelock.ErrHeld {
		t.Errorf("locked twice: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path, filelock.Exclusive); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("waiting in vain: %v", err)
	}
	go func() { // removes it while holding it, as delete does
		time.Sleep(20 * time.Millisecond) // sleep: the other is to wait by then, of which nothing tells
		os.Remove(path)
		first.Close()
	}()
	second, err := lockFile(t.Context(), path, filelock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := filelock.Open(path, filelock.Exclusive); err != filelock.ErrHeld {
		t.Errorf("the lock is on a file that is gone: %v", err)
	}
}

func TestOpenNeedsADirectory(t *testing.T) {
	if _, err := Open(Options{}); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("no directory: %v", err)
	}
}

// BenchmarkResolve measures later resolutions: microseconds.
func BenchmarkResolve(b *testing.B) {
	s := newStore(b)
	img := importRoot(b, s, "base", "x")
	path := writeFile(b, filepath.Join(b.TempDir(), "r.tar"), tarOf(b, item{name: "bin/sh", body: "y"}))
	time.Sleep(2100 * time.Millisecond) // sleep: the change time cannot be set
	for _, ref := range []string{"host", "base", img.Digest, "tar:" + path} {
		b.Run(strings.SplitN(ref, ":", 2)[0], func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Resolve(b.Context(), ref); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
