package daemon

import "testing"

func TestMemoryLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ group, machine, want int64 }{
		{0, 8192 * mib, 2048 * mib}, {500 * mib, 8192 * mib, 400 * mib}, {4096 * mib, 8192 * mib, 2048 * mib},
		{16384 * mib, 8192 * mib, 2048 * mib},
	} {
		if got := memoryLimit(c.group, c.machine); got != c.want {
			t.Errorf("a group of %d MiB on a machine of %d: %d MiB, want %d", c.group/mib, c.machine/mib, got/mib, c.want/mib)
		}
	}
}
