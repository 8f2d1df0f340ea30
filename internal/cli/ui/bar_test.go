package ui

import "testing"

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
		if got := BarText("downloading", c.done, c.total, c.width); got != c.want {
			t.Errorf("%d of %d in %d columns: %q, want %q", c.done, c.total, c.width, got, c.want)
		}
	}
	for width := -1; width < 120; width++ {
		for done := range int64(100) {
			if got := BarText("unpacking", done*mib/3, 33*mib, width); len(got) > max(width, 0) {
				t.Fatalf("%q has more than %d columns", got, width)
			}
		}
	}
}
