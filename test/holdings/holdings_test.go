package holdings

import (
	"maps"
	"testing"
)

// TestKernelLeaked: what sandboxes leave in the kernel is noticed, as what they need for a moment is not.
func TestKernelLeaked(t *testing.T) {
	before := parseKernel("MemTotal: 1 kB\nSlab:     900000 kB\nSReclaimable: 700000 kB\nSUnreclaim: 200000 kB\n" +
		"KernelStack: 5000 kB\nPageTables: 7000 kB\nPercpu: 7000 kB\n")
	with := func(name string, more int64) Kernel {
		after := maps.Clone(before)
		after[name] += more
		return after
	}
	for _, c := range []struct {
		name      string
		after     Kernel
		sandboxes int
		leaks     bool
	}{
		{"nothing", before, 0, false},
		{"less", with("SUnreclaim", -100<<10), 1000, false},
		{"what can be reclaimed", with("SReclaimable", 1<<20), 1000, false},
		{"a little", with("SUnreclaim", 30<<10), 10, false},
		{"a little for each", with("SUnreclaim", 4*100_000), 100_000, false},
		{"a control group for each of a thousand", with("SUnreclaim", 64*1000), 1000, true},
		{"the counters of one", with("Percpu", 60*1000), 1000, true},
		{"processes of others", with("KernelStack", 1<<20), 1000, false},
		{"much", with("SUnreclaim", 100<<10), 10, true},
	} {
		if got := KernelLeaked(before, c.after, c.sandboxes); (got != "") != c.leaks {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestLeaked(t *testing.T) {
	before := map[string]int{"mounts": 2, "processes": 1}
	for want, after := range map[string]map[string]int{
		"":                    {"mounts": 2, "processes": 0},
		"mounts: 3, before 2": {"mounts": 3},
		"doors: 1, before 0; processes: 2, before 1": {"processes": 2, "doors": 1},
	} {
		if got := Leaked(before, after); got != want {
			t.Errorf("%v: %q", after, got)
		}
	}
}
