package server

import (
	"testing"

	"github.com/cove-sandbox/cove/internal/image"
)

func TestBarText(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		done, total int64
		width       int
		want        string
	}{
		{0, 18 * mib, 79, "downloading   0% [                              ] 0 B of 18 MiB"},
		{9 * mib, 18 * mib, 79, "downloading  50% [===============               ] 9 MiB of 18 MiB"},
		{18 * mib, 18 * mib, 79, "downloading 100% [==============================] 18 MiB of 18 MiB"},
		{19 * mib, 18 * mib, 50, "downloading 100% [==============] 18 MiB of 18 MiB"},
		{9 * mib, 18 * mib, 35, "downloading  50% 9 MiB of 18 MiB"},
		{9 * mib, 18 * mib, 20, "downloading  50%"},
		{9 * mib, 18 * mib, 12, "downloading"},
		{9 * mib, 18 * mib, 5, ""},
		{9 * mib, -1, 79, "downloading 9 MiB"},
		{0, 0, 79, "downloading 0 B"},
	} {
		if got := barText("downloading", c.done, c.total, c.width); got != c.want {
			t.Errorf("%d of %d in %d columns: %q, want %q", c.done, c.total, c.width, got, c.want)
		}
	}
	for width := -1; width < 120; width++ {
		for done := range int64(100) {
			if got := barText("unpacking", done*mib/3, 33*mib, width); len(got) > max(width, 0) {
				t.Fatalf("%q has more than %d columns", got, width)
			}
		}
	}
}

// TestProgressGoesForward: a bar that shows the layers one after the other, or two stages as one, would fall back.
func TestProgressGoesForward(t *testing.T) {
	p := &progress{parts: map[progressPart]image.Event{}}
	event := func(s image.Stage, layer int, done, total int64) string {
		p.parts[progressPart{s, layer}] = image.Event{Stage: s, Layer: layer, Layers: 2, Done: done, Total: total}
		return p.line(30)
	}
	for _, c := range []struct{ got, want string }{
		{event(image.Download, 0, 0, 30), "downloading   0% 0 B of 30 B"},
		{event(image.Download, 1, 0, 70), "downloading   0% 0 B of 100 B"},
		{event(image.Download, 0, 30, 30), "downloading  30% 30 B of 100 B"},
		{event(image.Unpack, 0, 20, 30), "downloading  30% 30 B of 100 B"},
		{event(image.Unpack, 1, 0, 70), "downloading  30% 30 B of 100 B"},
		{event(image.Download, 1, 70, 70), "unpacking  20% 20 B of 100 B"},
		{event(image.Unpack, 1, 70, 70), "unpacking  90% 90 B of 100 B"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
