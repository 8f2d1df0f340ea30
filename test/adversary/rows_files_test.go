package adversary

import (
	"slices"
	"strings"
	"testing"
)

func TestUncovered(t *testing.T) {
	lines := []string{
		"1 0 0:1 / / ro - overlay overlay rw",
		"2 1 0:2 / /sys ro - sysfs sysfs ro",
		"3 2 0:3 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
		"4 3 0:4 / /sys/fs/cgroup/memory rw - cgroup cgroup rw",
		"5 2 0:5 / /sys ro - tmpfs tmpfs ro", // hides 2, and with it 3 and 4
		"6 1 0:6 / /work rw - tmpfs tmpfs rw",
		"7 5 0:7 / /sys/inside rw - tmpfs tmpfs rw", // is on what hides
		"8 6 0:8 / /work/sub rw - tmpfs tmpfs rw",
	}
	var ids []string
	for _, line := range uncovered(lines) {
		ids = append(ids, strings.Fields(line)[0])
	}
	if want := []string{"1", "5", "6", "7", "8"}; !slices.Equal(ids, want) {
		t.Errorf("mounts %v can be reached, want %v", ids, want)
	}
}
