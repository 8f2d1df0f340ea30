package soak

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/instance"
)

// holdings counts what the machine holds of a lab: what is there after everything has ended has leaked.
func (l *lab) holdings() map[string]int {
	l.t.Helper()
	dir, held := l.dir, map[string]int{}
	if l.engine == docker {
		containers, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter",
			"label=cove.realm="+instance.Realm(l.runDir())).Output()
		if err != nil {
			l.t.Fatalf("the containers: %v", err)
		}
		held["containers"] = len(strings.Fields(string(containers)))
	}
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

// kernel is what the kernel keeps for itself, for all programs of the machine, in KiB.
type kernel map[string]int64

// unreclaimed are the fields with memory that only a leak keeps. The kernel keeps what can be reclaimed until it needs
// the room, and stacks and page tables belong to processes, which are counted themselves.
var unreclaimed = []string{"SUnreclaim", "Percpu"}

// kernelMemory reads /proc/meminfo.
func kernelMemory() kernel {
	b, _ := os.ReadFile("/proc/meminfo")
	return parseKernel(string(b))
}

// parseKernel reads the text of /proc/meminfo. It is pure.
func parseKernel(text string) kernel {
	k := kernel{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch name := strings.TrimSuffix(f[0], ":"); name {
		case "Slab", "SReclaimable", "SUnreclaim", "KernelStack", "PageTables", "Percpu":
			k[name], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return k
}

func (k kernel) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(k)) {
		all = append(all, fmt.Sprintf("%s %d MiB", name, k[name]>>10))
	}
	return strings.Join(all, ", ")
}

// What the kernel may keep more of after sandboxes than before: some room, which other programs of the machine need and
// caches that fill once, and a little for each sandbox. A namespace or a control group that is never freed takes more,
// with the counters that each processor has of it. So the short form notices large leaks alone, and the long form, with
// thousands of sandboxes, small ones too.
const (
	kernelSlack = 48 << 10 // KiB
	kernelEach  = 8        // KiB
)

// kernelLeaked returns what the kernel holds too much of after some sandboxes have come and gone. It is pure.
func kernelLeaked(before, after kernel, sandboxes int) string {
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

// TestKernelLeaked: what sandboxes leave in the kernel is noticed, as what they need for a moment is not.
func TestKernelLeaked(t *testing.T) {
	before := parseKernel("MemTotal: 1 kB\nSlab:     900000 kB\nSReclaimable: 700000 kB\nSUnreclaim: 200000 kB\n" +
		"KernelStack: 5000 kB\nPageTables: 7000 kB\nPercpu: 7000 kB\n")
	with := func(name string, more int64) kernel {
		after := maps.Clone(before)
		after[name] += more
		return after
	}
	for _, c := range []struct {
		name      string
		after     kernel
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
		if got := kernelLeaked(before, c.after, c.sandboxes); (got != "") != c.leaks {
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
		if got := leaked(before, after); got != want {
			t.Errorf("%v: %q", after, got)
		}
	}
}
