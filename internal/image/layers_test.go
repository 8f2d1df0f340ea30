package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/engine"
)

// TestLayersMakeRoom: layers of builds count among the images, and the one that was used the longest ago goes first,
// unless something holds it.
func TestLayersMakeRoom(t *testing.T) {
	const mib = 1 << 20
	s := newStore(t)
	s.most = 3*mib + mib/2
	b := BuildsOf(s)
	room, done, err := b.Room(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep := func(key string, age time.Duration) Layer {
		t.Helper()
		dir := filepath.Join(room, key)
		if err := engine.MakeLayer(dir); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(engine.Changes(dir), "file"), make([]byte, mib))
		l, err := b.Keep(key, Layer{Dir: dir, DiffID: key})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(l.Dir, layerRecord), at, at); err != nil {
			t.Fatal(err)
		}
		return l
	}
	there := func(want map[string]bool) {
		t.Helper()
		for key, is := range want {
			_, err := os.Lstat(filepath.Join(b.kept(), key))
			if (err == nil) != is || !is && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v, want %v", key, err, is)
			}
		}
	}
	held := keep("held", 9*time.Hour)
	keep("old", 8*time.Hour).Release()
	keep("found", 7*time.Hour).Release()
	there(map[string]bool{"held": true, "old": true, "found": true})
	keep("next", 6*time.Hour).Release()
	there(map[string]bool{"held": true, "old": false, "found": true, "next": true})
	found, err := b.Find("found")
	if err != nil || found.DiffID != "found" || found.Bytes < mib {
		t.Fatalf("%+v, %v", found, err)
	}
	found.Release() // its use is the latest now
	keep("last", 0).Release()
	there(map[string]bool{"held": true, "found": true, "next": false, "last": true})
	held.Release()
	done()
	archive := writeFile(t, filepath.Join(t.TempDir(), "root.tar"), tarOf(t, item{name: "bin/sh",
		body: string(make([]byte, mib))}))
	if _, err := s.Import(t.Context(), "tar:"+archive, "mine", ImportOptions{}); err != nil {
		t.Errorf("an image has no room: %v", err)
	}
	there(map[string]bool{"held": false, "found": true, "last": true})
	if out, err := s.Prune(t.Context(), nil); err != nil || out.Freed < 2*mib {
		t.Errorf("pruned: %+v, %v", out, err)
	}
	wantNoLitter(t, s, 1)
}
