// Package holdings counts what the machine holds of a server and its sandboxes: what is there after everything has
// ended has leaked.
package holdings

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Holder is a server: all that it keeps is below a directory, and its sandboxes are in a control group.
type Holder struct {
	Dir     string // in the environment of its processes
	RunDir  string
	Home    string
	Cgroups string // the name of the control group
}

// Count counts what the machine holds, by what it is.
func (h Holder) Count() map[string]int {
	held := map[string]int{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	namespaces := map[string]bool{}
	for _, p := range processes {
		environ, _ := os.ReadFile(p + "/environ")
		if !bytes.Contains(environ, []byte(h.Dir)) && !inGroup(p, h.Cgroups) {
			continue
		}
		held["processes"]++
		if ns, err := os.Readlink(p + "/ns/user"); err == nil {
			namespaces[ns] = true
		}
	}
	held["namespaces"] = len(namespaces)
	for _, path := range groups(h.Cgroups, "") {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			held["control groups"]++
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	held["mounts"] = strings.Count(string(mounts), h.Dir)
	for name, pattern := range map[string]string{
		"directories of workspaces": filepath.Join(h.Home, "workspaces/sb_*"),
		"directories of sandboxes":  filepath.Join(h.Home, "sandboxes/*"),
		"locks of instances":        filepath.Join(h.RunDir, "instances/*.lock"),
		"doors":                     filepath.Join(h.RunDir, "lasting/*/*"),
	} {
		found, _ := filepath.Glob(pattern)
		held[name] = len(found)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range loops {
		if image, err := os.ReadFile(path); err == nil && bytes.HasPrefix(image, []byte(h.Dir+"/")) {
			held["loop devices"]++
		}
	}
	return held
}

// inGroup reports whether a process, by its directory of /proc, is below a control group.
func inGroup(process, name string) bool {
	group, _ := os.ReadFile(process + "/cgroup")
	return bytes.Contains(group, []byte("/"+name+"/")) || bytes.Contains(group, []byte("/"+name+"\n"))
}

// groups lists the groups below a control group of either version, or files in them.
func groups(name, file string) []string {
	earlier, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name, "*", file))
	unified, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", name, "*", file))
	return slices.Concat(earlier, unified)
}

// Charged returns the memory that the control groups of all sandboxes have, in bytes.
func Charged(cgroups string) (sum int) {
	for _, path := range slices.Concat(groups(cgroups, "memory.usage_in_bytes"), groups(cgroups, "memory.current")) {
		if b, err := os.ReadFile(path); err == nil {
			n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
			sum += n
		}
	}
	return sum
}

// Private returns the memory that the processes below a control group share with no other process, in MiB.
func Private(cgroups string) float64 {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	kib := int64(0)
	for _, p := range processes {
		if !inGroup(p, cgroups) {
			continue
		}
		if text, err := os.ReadFile(p + "/smaps_rollup"); err == nil {
			fields := fieldsOf(string(text))
			kib += fields["Private_Clean"] + fields["Private_Dirty"]
		}
	}
	return float64(kib) / 1024
}

// Available returns the memory that programs could still have, in MiB.
func Available() float64 {
	text, _ := os.ReadFile("/proc/meminfo")
	return float64(fieldsOf(string(text))["MemAvailable"]) / 1024
}

// Leaked lists what there is more of.
func Leaked(before, after map[string]int) string {
	var all []string
	for what, n := range after {
		if n > before[what] {
			all = append(all, fmt.Sprintf("%s: %d, before %d", what, n, before[what]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// Kernel is what the kernel keeps for itself, for all programs of the machine, in KiB.
type Kernel map[string]int64

// unreclaimed are the fields with memory that only a leak keeps. The kernel keeps what can be reclaimed until it needs
// the room, and stacks and page tables belong to processes, which are counted themselves.
var unreclaimed = []string{"SUnreclaim", "Percpu"}

// KernelMemory reads /proc/meminfo.
func KernelMemory() Kernel {
	b, _ := os.ReadFile("/proc/meminfo")
	return parseKernel(string(b))
}

// parseKernel reads the text of /proc/meminfo.
func parseKernel(text string) Kernel {
	all, k := fieldsOf(text), Kernel{}
	for _, name := range []string{"Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu"} {
		if kib, ok := all[name]; ok {
			k[name] = kib
		}
	}
	return k
}

// fieldsOf reads lines such as "Percpu: 12 kB".
func fieldsOf(text string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 {
			all[strings.TrimSuffix(f[0], ":")], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return all
}

func (k Kernel) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(k)) {
		all = append(all, fmt.Sprintf("%s %d MiB", name, k[name]>>10))
	}
	return strings.Join(all, ", ")
}

// What the kernel may keep more of after sandboxes than before: some room, which other programs of the machine need and
// caches that fill once, and a little for each sandbox. A namespace or a control group that is never freed takes more,
// with the counters that each processor has of it. So a few sandboxes show large leaks alone, and thousands small ones
// too.
const (
	kernelSlack = 48 << 10 // KiB
	kernelEach  = 8        // KiB
)

// KernelLeaked returns what the kernel holds too much of after some sandboxes have come and gone.
func KernelLeaked(before, after Kernel, sandboxes int) string {
	more := int64(0)
	for _, name := range unreclaimed {
		more += after[name] - before[name]
	}
	if most := int64(kernelSlack + kernelEach*sandboxes); more > most {
		return fmt.Sprintf("the kernel keeps %d KiB more after %d sandboxes, and %d KiB would do: %v, and before %v", more,
			sandboxes, most, after, before)
	}
	return ""
}
