package image

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestPin: an image whose changes a sandbox keeps stays, also without a process that holds it, until the sandbox is
// gone.
func TestPin(t *testing.T) {
	s := newStore(t)
	ctx, pins := t.Context(), PinsOf(s)
	img := importRoot(t, s, "one", "1")
	box, other := cove.NewSandboxID(), cove.NewSandboxID()
	for _, id := range []cove.SandboxID{box, other, box} {
		if err := pins.Pin(img.Digest, id); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := s.Remove(ctx, "one")
	if cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("it was removed: %+v, %v", removed, err)
	}
	if err := pins.Unpin(img.Digest, other); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(ctx, img.Digest); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("one pin of two: %v", err)
	}
	importRoot(t, s, "one", "2") // the name goes on to another image
	if removed, err := s.Prune(ctx, nil); err != nil || len(removed.Images) != 0 {
		t.Errorf("pruned: %+v, %v", removed, err)
	}
	if r, err := s.Resolve(ctx, img.Digest); err != nil || r.Digest != img.Digest {
		t.Errorf("by its digest it is %+v, %v", r, err)
	}
	for range 2 {
		if err := pins.Unpin(img.Digest, box); err != nil {
			t.Fatal(err)
		}
	}
	removed, err = s.Prune(ctx, nil)
	if err != nil || len(removed.Images) != 1 || removed.Images[0].Digest != img.Digest {
		t.Errorf("pruned without pins: %+v, %v", removed, err)
	}
	for digest, id := range map[string]cove.SandboxID{"sha256:../../x": box, img.Digest: "../x"} {
		if err := pins.Pin(digest, id); err == nil {
			t.Errorf("Pin(%q, %q)", digest, id)
		}
	}
}

// TestPinOfNothing: the pin of an image that never came to be, since its build was killed, keeps no base.
func TestPinOfNothing(t *testing.T) {
	s := newStore(t)
	img := importRoot(t, s, "one", "1")
	lost := &Image{Digest: "sha256:" + strings.Repeat("0", 64), Base: img.Digest}
	if err := PinsOf(s).pinBelow(lost); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Remove(t.Context(), "one"); err != nil || len(removed.Images) != 1 {
		t.Errorf("%+v, %v", removed, err)
	}
}
