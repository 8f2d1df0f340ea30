package image

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

// TestCaches: a cache is filled once, is found by its id whatever that looks like, keeps others out who want it alone,
// and goes when the images have no room, or by hand, unless a build has it.
func TestCaches(t *testing.T) {
	const mib = 1 << 20
	s := newStore(t)
	s.most = 3 * mib
	if err := s.ensure(); err != nil {
		t.Fatal(err)
	}
	b := BuildsOf(s)
	fills := 0
	open := func(id string, alone bool) (string, func()) {
		t.Helper()
		dir, done, err := b.Cache(t.Context(), id, alone, func(dir string) error {
			fills++
			return os.WriteFile(filepath.Join(dir, "first"), []byte(id), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		return dir, func() {
			t.Helper()
			if err := done(); err != nil {
				t.Error(err)
			}
		}
	}
	ids := []string{"/root/.cache", "../../../etc", "a/b", ".", strings.Repeat("x", 5000), "\x00\n"}
	places := map[string]bool{}
	for range 2 {
		for _, id := range ids {
			dir, done := open(id, false)
			text, err := os.ReadFile(filepath.Join(dir, "first"))
			if err != nil || string(text) != id || filepath.Dir(filepath.Dir(dir)) != filepath.Join(s.dir, cachesName) {
				t.Errorf("%.40q is at %s with %.40q, %v", id, dir, text, err)
			}
			places[dir] = true
			done()
		}
	}
	if fills != len(ids) || len(places) != len(ids) {
		t.Errorf("%d caches at %d places, filled %d times", len(ids), len(places), fills)
	}
	_, done := open("one", true)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Cache(ended, "one", false, nil); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("a cache that another build wants alone is taken: %v", err)
	}
	there := func(id string) bool {
		found := false
		all, err := cachesOf(s).list()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			data, _ := os.ReadFile(filepath.Join(c.place, cacheRecord))
			found = found || strings.Contains(string(data), `"id":"`+id+`"`)
		}
		return found
	}
	if _, err := s.Prune(t.Context(), nil); err != nil || !there("one") || there("a/b") {
		t.Errorf("pruned: %v, %v, %v", err, there("one"), there("a/b"))
	}
	done()
	write := func(id string, size int) func() {
		t.Helper()
		dir, done := open(id, false)
		body := make([]byte, size)
		rand.Read(body)
		if err := os.WriteFile(filepath.Join(dir, "body"), body, 0o600); err != nil {
			t.Fatal(err)
		}
		return done
	}
	write("old", mib)()
	long := time.Unix(1, 0)
	if err := os.Chtimes(filepath.Join(cachesOf(s).place("old"), cacheRecord), long, long); err != nil {
		t.Fatal(err)
	}
	write("held", mib)()
	_, free := open("held", false)
	if write("new", mib+mib/2)(); there("old") || !there("held") || !there("new") {
		t.Errorf("old %v, held %v, new %v", there("old"), there("held"), there("new"))
	}
	body := make([]byte, 2*mib-mib/2)
	rand.Read(body)
	archive := writeFile(t, filepath.Join(t.TempDir(), "root.tar"), tarOf(t, item{name: "bin/sh", body: string(body)}))
	if _, err := s.Import(t.Context(), "tar:"+archive, "mine", ImportOptions{}); err != nil || there("new") ||
		!there("held") {
		t.Errorf("an image has no room: %v, new %v, held %v", err, there("new"), there("held"))
	}
	free()
	failed := errors.New("failed")
	if _, _, err := b.Cache(t.Context(), "broken", false, func(string) error { return failed }); !errors.Is(err, failed) ||
		there("broken") {
		t.Errorf("a cache that cannot be filled: %v", err)
	}
	if out, err := s.Prune(t.Context(), nil); err != nil || out.Freed < mib || there("held") {
		t.Errorf("pruned: %+v, %v", out, err)
	}
	left, err := os.ReadDir(filepath.Join(s.dir, cachesName))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	wantNoLitter(t, s, 1)
}
