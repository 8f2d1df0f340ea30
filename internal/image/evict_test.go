package image

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

// TestImagesAreBounded: images stay within their bound together. Those that requests have unpacked make room, the one
// first that was used the longest ago, unless it is held or was named by its digest; those that a user has imported
// never do.
func TestImagesAreBounded(t *testing.T) {
	const mib = 1 << 20
	s := newStore(t)
	s.most = 3*mib + mib/2
	ctx := t.Context()
	archive := func(size int) string {
		body := make([]byte, size)
		rand.Read(body)
		return writeFile(t, filepath.Join(t.TempDir(), "root.tar"), tarOf(t, item{name: "bin/sh", body: string(body)}))
	}
	run := func(path string) string {
		t.Helper()
		r, err := s.Resolve(ctx, "tar:"+path)
		if err != nil {
			t.Fatal(err)
		}
		return r.Digest
	}
	used := func(digest string, ago time.Duration) {
		at := time.Now().Add(-ago)
		if err := os.Chtimes(filepath.Join(s.imageDir(digest), recordName), at, at); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, digests ...string) {
		t.Helper()
		var got []string
		sum := int64(0)
		for _, img := range list(t, s) {
			got, sum = append(got, img.Digest), sum+img.Size
		}
		slices.Sort(got)
		slices.Sort(digests)
		if !slices.Equal(got, digests) || sum > s.most {
			t.Errorf("%s: %v with %d KiB, want %v", what, got, sum>>10, digests)
		}
	}
	mine, err := s.Import(ctx, "tar:"+archive(mib), "mine", ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used(mine.Digest, 9*time.Hour)
	file := archive(mib)
	a := run(file)
	used(a, 8*time.Hour)
	b := run(archive(mib))
	used(b, 7*time.Hour)
	want("three", mine.Digest, a, b)
	c := run(archive(mib))
	want("a fourth", mine.Digest, b, c)
	release, err := s.Hold(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	used(b, 7*time.Hour)
	if a = run(file); !strings.HasPrefix(a, "sha256:") {
		t.Fatal(a)
	}
	want("while one is held, and another comes back", mine.Digest, b, a)
	if _, err := s.Resolve(ctx, a); err != nil { // as a sandbox that has nothing but the digest
		t.Fatal(err)
	}
	release()
	used(a, 8*time.Hour)
	used(b, 7*time.Hour)
	d := run(archive(mib))
	want("after one was named by its digest", mine.Digest, a, d)

	_, err = s.Import(ctx, "tar:"+archive(2*mib), "large", ImportOptions{})
	if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "disk.images_mb") {
		t.Errorf("more than there is room for: %v", err)
	}
	want("refused", mine.Digest, a)
	wantNoLitter(t, s, 2)
	if _, err := s.Import(ctx, "tar:"+archive(mib), "small", ImportOptions{}); err != nil {
		t.Errorf("what fits: %v", err)
	}
}

func list(t *testing.T, s *Store) []Image {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImagesTogether: images that are unpacked at once are judged by their sum.
func TestImagesTogether(t *testing.T) {
	s := newStore(t)
	s.most = 100
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	one, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	defer two.discard()
	for _, step := range []struct {
		of    *temp
		bytes int64
		want  cove.Code
	}{{one, 60, ""}, {two, 41, cove.StorageFull}, {two, 40, ""}, {one, 61, cove.StorageFull},
		{one, 10, ""}, {two, 90, ""}} {
		if err := s.claim(t.Context(), step.of, step.bytes); cove.ErrorCode(err) != step.want {
			t.Errorf("%d: %v", step.bytes, err)
		}
	}
	if err := one.discard(); err != nil {
		t.Fatal(err)
	}
	if err := s.claim(t.Context(), two, 100); err != nil {
		t.Errorf("after one was discarded: %v", err)
	}
}

// TestEvictionInterrupted: what an eviction leaves that was killed between its steps goes with the next one.
func TestEvictionInterrupted(t *testing.T) {
	s := newStore(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "root.tar"), tarOf(t, item{name: "bin/sh", body: "x"}))
	r, err := s.Resolve(t.Context(), "tar:"+path)
	if err != nil {
		t.Fatal(err)
	}
	// Its names are gone, and its files are not.
	if err := s.update(t.Context(), func(i *index) error { i.drop(r.Digest); return nil }); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.evict(); err != nil || !gone {
		t.Errorf("%v, %v", gone, err)
	}
	// It is taken out, and not removed.
	if r, err = s.Resolve(t.Context(), "tar:"+path); err != nil {
		t.Fatal(err)
	}
	out, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.imageDir(r.Digest), filepath.Join(out.dir, "removed")); err != nil {
		t.Fatal(err)
	}
	out.lock.Close() // as the kernel does
	s = storeAt(t, s.dir)
	wantNoLitter(t, s, 0)
	if _, err := s.Resolve(t.Context(), "tar:"+path); err != nil {
		t.Errorf("it does not come back: %v", err)
	}
}
