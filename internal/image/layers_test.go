package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
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
		l, err := b.Keep(t.Context(), key, Layer{Dir: dir, DiffID: key})
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

// layerWith makes a layer with a file in a directory of a build.
func layerWith(t *testing.T, room, name, text string) Layer {
	t.Helper()
	dir := filepath.Join(room, name)
	if err := engine.MakeLayer(dir); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(engine.Changes(dir), name), []byte(text))
	return Layer{Dir: dir, DiffID: "sha256:" + sum([]byte(text))}
}

// TestImagesKeepLayers: an image has the layers that builds keep, without files of its own. They count once, and stay
// as long as it does, whatever needs room.
func TestImagesKeepLayers(t *testing.T) {
	s := newStore(t)
	b := BuildsOf(s)
	room, done, err := b.Room(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var layers []Layer
	for _, name := range []string{"one", "two", "former", "unused"} {
		l, err := b.Keep(t.Context(), name, layerWith(t, room, name, name))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, l)
	}
	// The record of an earlier version does not say how many files there are.
	former := mustJSON(t, map[string]any{"diff_id": layers[2].DiffID, "created": time.Now(), "bytes": 6})
	layers[2].Release()
	writeFile(t, filepath.Join(b.kept(), "former", layerRecord), []byte(former))
	if layers[2], err = b.Find("former"); err != nil {
		t.Fatal(err)
	}
	scratch, _, err := b.Base(t.Context(), Scratch)
	if err != nil {
		t.Fatal(err)
	}
	name, err := b.Name("mine")
	if err != nil {
		t.Fatal(err)
	}
	built := Built{Base: scratch, Layers: layers[:3], Name: name}
	for _, l := range built.Layers {
		built.Steps = append(built.Steps, Step{Text: "RUN", Layer: l.DiffID})
	}
	img, err := b.Publish(t.Context(), built)
	if err != nil || img.Size != 12 || img.Files != 3 || len(img.Kept) != 3 || ownBytes(s, &img) != 0 {
		t.Fatalf("%+v, %v", img, err)
	}
	for _, l := range layers {
		l.Release()
	}
	done()
	if sum, err := s.taken(nil); err != nil || sum != 12+int64(len("unused")) {
		t.Errorf("all have %d bytes, %v", sum, err)
	}
	for gone := true; gone; {
		if gone, err = evictUsed(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	root, err := s.Resolve(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two", "former"} {
		wantSameTree(t, root.Stack()[i], map[string]string{name: name})
	}
	left, err := os.ReadDir(b.kept())
	if err != nil || len(left) != 3 {
		t.Errorf("builds keep %v, %v", left, err)
	}
	if parts, err := b.parts(Base{Digest: img.Digest, Stack: root.Stack()}); err != nil || len(parts) != 3 ||
		parts[1].dir != root.Stack()[1] {
		t.Errorf("it is saved as %+v, %v", parts, err)
	}
	if removed, err := s.Remove(t.Context(), "mine"); err != nil || len(removed.Images) != 1 || removed.Freed != 0 {
		t.Errorf("%+v, %v", removed, err)
	}
	if gone, err := evictUsed(s); err != nil || !gone {
		t.Errorf("without the image none makes room: %v, %v", gone, err)
	}
	if removed, err := s.Prune(t.Context(), nil); err != nil || removed.Freed == 0 {
		t.Errorf("pruned: %+v, %v", removed, err)
	}
	if left, err := os.ReadDir(b.kept()); err != nil || len(left) != 0 {
		t.Errorf("builds keep %v, %v", left, err)
	}
	wantNoLitter(t, s, 0)
}

// TestImageWithoutItsLayer: an image of which a layer was taken from the store by hand is refused by name.
func TestImageWithoutItsLayer(t *testing.T) {
	s := newStore(t)
	b := BuildsOf(s)
	room, done, err := b.Room(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	l, err := b.Keep(t.Context(), "one", layerWith(t, room, "one", "1"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	scratch, _, err := b.Base(t.Context(), Scratch)
	if err != nil {
		t.Fatal(err)
	}
	built := Built{Base: scratch, Layers: []Layer{l}, Steps: []Step{{Text: "RUN", Layer: l.DiffID}}}
	img, err := b.Publish(t.Context(), built)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(l.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), img.Digest); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("%v", err)
	}
}

// TestLayersAfterAFailure: a layer is found again after its build was killed. After a failure of the machine it is not,
// unless it was written to the disk by then, and the next build makes it anew.
func TestLayersAfterAFailure(t *testing.T) {
	s := newStore(t)
	b := BuildsOf(s)
	room, done, err := b.Room(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]Layer{}
	keep := func(name string) {
		t.Helper()
		l, err := b.Keep(t.Context(), name, layerWith(t, room, name, name))
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		kept[name] = l
	}
	for _, name := range []string{"killed", "settled", "image", "stage", "empty"} {
		keep(name)
	}
	if err := b.Settle([]Layer{kept["settled"]}); err != nil {
		t.Fatal(err)
	}
	scratch, _, err := b.Base(t.Context(), Scratch)
	if err != nil {
		t.Fatal(err)
	}
	of, err := b.Find("image")
	if err != nil {
		t.Fatal(err)
	}
	built := Built{Base: scratch, Layers: []Layer{of}, Kept: []Layer{of, kept["stage"]},
		Steps: []Step{{Text: "RUN", Layer: of.DiffID}}}
	if _, err := b.Publish(t.Context(), built); err != nil {
		t.Fatal(err)
	}
	of.Release()
	if err := os.Remove(filepath.Join(of.Dir, layerSynced)); err != nil { // the failure came between the image and this
		t.Fatal(err)
	}
	found := func(want map[string]bool) {
		t.Helper()
		for name, is := range want {
			l, err := b.Find(name)
			if l.Release(); (err == nil) != is || !is && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v, want %v", name, err, is)
			}
		}
	}
	found(map[string]bool{"killed": true, "settled": true, "image": true, "stage": true, "empty": true})
	for name, l := range kept { // as an earlier boot has left them
		l.Boot = "earlier"
		text := mustJSON(t, l)
		if name == "empty" {
			text = ""
		}
		writeFile(t, filepath.Join(l.Dir, layerRecord), []byte(text))
	}
	found(map[string]bool{"killed": false, "settled": true, "image": true, "stage": true, "empty": false})
	if err := os.RemoveAll(room); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(room, 0o700); err != nil {
		t.Fatal(err)
	}
	keep("killed")
	keep("empty")
	found(map[string]bool{"killed": true, "empty": true})
	done()
}
