package embedded

import (
	"testing"

	"github.com/cove-sandbox/cove/internal/image"
)

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
