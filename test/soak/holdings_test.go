package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// holdings counts what the machine holds of a lab: what is there after everything has ended has leaked.
func holdings(dir string) map[string]int {
	held := map[string]int{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	namespaces := map[string]bool{}
	for _, p := range processes {
		environ, _ := os.ReadFile(p + "/environ")
		group, _ := os.ReadFile(p + "/cgroup")
		if !bytes.Contains(environ, []byte(dir)) && !bytes.Contains(group, []byte("/"+groups)) {
			continue
		}
		held["processes"]++
		if ns, err := os.Readlink(p + "/ns/user"); err == nil {
			namespaces[ns] = true
		}
	}
	held["namespaces"] = len(namespaces)
	made, _ := filepath.Glob("/sys/fs/cgroup/*/" + groups + "/*")
	whole, _ := filepath.Glob("/sys/fs/cgroup/" + groups + "/*")
	for _, path := range slices.Concat(made, whole) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			held["control groups"]++
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	held["mounts"] = strings.Count(string(mounts), dir)
	for name, pattern := range map[string]string{"directories of workspaces": "home/workspaces/sb_*",
		"directories of sandboxes": "home/sandboxes/*", "locks of instances": "run/instances/*.lock",
		"doors": "run/lasting/*/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		held[name] = len(found)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range loops {
		if image, err := os.ReadFile(path); err == nil && bytes.HasPrefix(image, []byte(dir+"/")) {
			held["loop devices"]++
		}
	}
	return held
}

// charged is the memory that the control groups of all sandboxes have, in bytes.
func charged() (sum int) {
	earlier, _ := filepath.Glob("/sys/fs/cgroup/memory/" + groups + "/*/memory.usage_in_bytes")
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + groups + "/*/memory.current")
	for _, path := range slices.Concat(earlier, unified) {
		if b, err := os.ReadFile(path); err == nil {
			n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			sum += n
		}
	}
	return sum
}

// leaked lists what there is more of.
func leaked(before, after map[string]int) string {
	var all []string
	for what, n := range after {
		if n > before[what] {
			all = append(all, fmt.Sprintf("%s: %d, before %d", what, n, before[what]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// slab is what the kernel says about its own memory.
func slab() string {
	b, _ := os.ReadFile("/proc/meminfo")
	var all []string
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains([]string{"Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu"}, name) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(all, ", ")
}

func TestLeaked(t *testing.T) {
	before := map[string]int{"mounts": 2, "processes": 1}
	for want, after := range map[string]map[string]int{
		"":                    {"mounts": 2, "processes": 0},
		"mounts: 3, before 2": {"mounts": 3},
		"doors: 1, before 0; processes: 2, before 1": {"processes": 2, "doors": 1},
	} {
		if got := leaked(before, after); got != want {
			t.Errorf("%v: %q", after, got)
		}
	}
}
