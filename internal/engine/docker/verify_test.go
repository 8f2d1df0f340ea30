//go:build linux

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// asked is a container as the engine asks for it, and held its table of mounts.
func askedOf() *container.HostConfig {
	pids := int64(80)
	return &container.HostConfig{ReadonlyRootfs: true, CapAdd: capsOfGuest,
		MaskedPaths: []string{"/proc/kcore", "/proc/acpi", "/proc/absent", "/sys"}, ReadonlyPaths: []string{"/proc/sys"},
		Tmpfs:  map[string]string{"/tmp": "rw,noexec,nosuid,nodev,size=8192,nr_inodes=10,mode=1777,uid=1,gid=1"},
		Mounts: []mount.Mount{{Target: "/usr", ReadOnly: true}, {Target: "/work"}},
		Resources: container.Resources{Memory: 1 << 20, MemorySwap: 1 << 20, NanoCPUs: 5e8,
			PidsLimit: &pids}}
}

const held = `1 0 0:50 / / ro,relatime - overlay overlay rw,lowerdir=/l
2 1 0:51 / /proc rw,nosuid,nodev,noexec - proc proc rw
3 1 0:52 / /dev rw,nosuid - tmpfs tmpfs rw,size=64k
4 3 0:53 / /dev/pts rw,nosuid,noexec - devpts devpts rw
5 1 0:54 / /sys ro,nosuid,nodev,noexec - sysfs sysfs ro
6 5 0:55 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs cgroup rw
7 5 0:56 / /sys ro,nosuid,nodev,noexec - tmpfs tmpfs ro
8 2 0:52 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=64k
9 2 0:57 / /proc/acpi ro - tmpfs tmpfs ro
10 2 0:51 /sys /proc/sys ro,nosuid - proc proc rw
11 1 0:58 / /tmp rw,nosuid,nodev,noexec - tmpfs tmpfs rw,size=8k,nr_inodes=10,mode=1777
12 1 8:1 /usr /usr ro,nosuid,nodev - ext4 /dev/sda rw
13 1 8:1 /w /work rw,nosuid,nodev - ext4 /dev/sda rw
14 1 0:59 /containers/x/userdata/hostname /etc/hostname rw,nosuid - tmpfs tmpfs rw
15 2 0:51 /bus /proc/bus ro,nosuid - proc proc rw
17 3 0:6 /zero /dev/zero rw,nosuid,noexec - devtmpfs devtmpfs rw
`

// TestWeakMounts: each mount of a container that is weaker than asked for is seen.
func TestWeakMounts(t *testing.T) {
	there := func(name string) bool { return name != "/proc/absent" }
	if weak := weakMounts(held, askedOf(), there); len(weak) > 0 {
		t.Fatalf("a container that is as it was asked for: %v", weak)
	}
	for _, c := range []struct{ from, to, says string }{
		{"/ / ro,relatime", "/ / rw,relatime", "root filesystem"},
		{"7 5 0:56", "7 5 0:56 / /elsewhere ro - tmpfs tmpfs ro\n#", "/sys is not hidden"},
		{"8 2 0:52 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=64k\n", "", "/proc/kcore is not hidden"},
		{"9 2 0:57 / /proc/acpi ro", "9 2 0:57 / /proc/acpi rw", "/proc/acpi is not hidden"},
		{"/sys /proc/sys ro", "/sys /proc/sys rw", "/proc/sys is writable"},
		{"10 2 0:51 /sys /proc/sys ro,nosuid - proc proc rw\n", "", "/proc/sys is writable"},
		{"size=8k", "size=9k", "/tmp has no size=8192"},
		{",nr_inodes=10", "", "/tmp has no nr_inodes=10"},
		{"/tmp rw,nosuid,nodev,noexec", "/tmp rw,nosuid,nodev", "/tmp has no noexec"},
		{"/tmp rw,nosuid", "/tmp rw", "/tmp has no nosuid"},
		{"/tmp rw,nosuid,nodev,noexec - tmpfs", "/tmp rw,nosuid,nodev,noexec - ext4", "/tmp is no file system"},
		{"11 1 0:58 / /tmp", "11 1 0:58 / /other", "/tmp is no file system"},
		{"/usr ro", "/usr rw", "the mount at /usr"},
		{"/work rw,nosuid", "/work rw", "the mount at /work"},
		{"/work rw,nosuid,nodev", "/work rw,nosuid", "the mount at /work"},
		{"14 1", "16 1 8:1 /etc /host ro - ext4 /dev/sda rw\n14 1", "something is mounted at /host"},
		{"14 1", "16 1 8:1 /etc /proc/1 ro - ext4 /dev/sda rw\n14 1", "something is mounted at /proc/1"},
		{"/userdata/hostname", "/shadow", "something is mounted at /etc/hostname"},
		{"/zero /dev/zero", "/mem /dev/zero", "something is mounted at /dev/zero"},
		{"/zero /dev/zero", "/mem /dev/mem", "something is mounted at /dev/mem"},
		{"/proc/bus ro", "/proc/bus rw", "something is mounted at /proc/bus"},
	} {
		table := strings.Replace(held, c.from, c.to, 1)
		if table == held {
			t.Fatalf("the table has no %q", c.from)
		}
		weak := weakMounts(table, askedOf(), there)
		if !slices.ContainsFunc(weak, func(w string) bool { return strings.Contains(w, c.says) }) {
			t.Errorf("%q for %q: %v, want %q", c.to, c.from, weak, c.says)
		}
	}
}

// TestWeakStatus: capabilities that were not asked for, no filter, and privileges to be gained are seen.
func TestWeakStatus(t *testing.T) {
	own := uint64(1<<unix.CAP_KILL | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP)
	status := func(caps uint64, seccomp, noNew int) string {
		return fmt.Sprintf("CapInh:\t0\nCapPrm:\t%x\nCapEff:\t%x\nCapBnd:\t%x\nCapAmb:\t0\nNoNewPrivs:\t%d\nSeccomp:\t%d\n",
			own, own, caps, noNew, seccomp)
	}
	for text, want := range map[string]int{status(own, 2, 1): 0, status(own|1<<unix.CAP_CHOWN, 2, 1): 1,
		status(own, 0, 1): 1, status(own, 2, 0): 1, "": 7} {
		if weak := weakStatus(text, capsOfGuest); len(weak) != want {
			t.Errorf("%q: %v", text, weak)
		}
	}
}

// TestWeakLimits: a limit that is missing, or higher than asked for, is seen.
func TestWeakLimits(t *testing.T) {
	for _, c := range []struct {
		is   cgroup.Limits
		want int
	}{
		{cgroup.Limits{Memory: 1 << 20, CPUs: 0.5, PIDs: 80}, 0},
		{cgroup.Limits{}, 3},
		{cgroup.Limits{Memory: 2 << 20, CPUs: 0.5, PIDs: 80}, 1},
		{cgroup.Limits{Memory: 1 << 20, CPUs: 0.6, PIDs: 80}, 1},
		{cgroup.Limits{Memory: 1 << 20, CPUs: 0.5, PIDs: 81}, 1},
	} {
		if weak := weakLimits(c.is, askedOf()); len(weak) != c.want {
			t.Errorf("%+v: %v", c.is, weak)
		}
	}
}

// TestWeakEnv: a variable of the image that reaches the first process is seen.
func TestWeakEnv(t *testing.T) {
	image := []string{"PATH=/bin", "GODEBUG=x=1"}
	if weak := weakEnv([]string{"PATH=/bin", "TERM=xterm"}, image); len(weak) > 0 {
		t.Error(weak)
	}
	if weak := weakEnv([]string{"PATH=/bin", "GODEBUG=x=1"}, image); len(weak) != 1 {
		t.Error(weak)
	}
}

// TestKeeps: a user of a container who is not this user, and root inside who is this user or the host's root, are seen.
func TestKeeps(t *testing.T) {
	for text, want := range map[string]bool{
		"0 100000 1000\n1000 501 1\n1001 101000 64536\n": true,
		"0 501 1\n1 100000 65536\n":                      false, // of no user namespace but the service's
		"0 501 1\n1 100000 999\n1000 501 1\n":            false,
		"0 0 1\n1 100000 999\n1000 501 1\n":              false,
		"1000 501 1\n":                                   false,
		"0 100000 65536\n":                               false,
		"":                                               false,
		"0 100000 1000\n1000 501\n":                      false,
		"         0     100000       1000\n1000   501   1\n": true,
	} {
		if got := keeps(text, 1000, 501); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// TestNodes: a device of the host in a container's /dev is seen.
func TestNodes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := nodes(dir); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "null"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := nodes(dir); err != nil || !slices.Equal(found, []string{"null"}) {
		t.Errorf("a file in place of a device: %v, %v", found, err)
	}
	if found, err := nodes("/dev"); err != nil || len(found) == 0 || slices.Contains(found, "null") {
		t.Errorf("of this machine's /dev: %v, %v", found, err)
	}
}

// TestPodmanCapabilities: a service that cannot be checked, or that limits less than Cove promises, is refused with
// what to do.
func TestPodmanCapabilities(t *testing.T) {
	info := system.Info{OSType: "linux", Architecture: "amd64", MemoryLimit: true, SwapLimit: true, CPUCfsPeriod: true,
		CPUCfsQuota: true, PidsLimit: true, SecurityOptions: []string{"name=seccomp,profile=default"}}
	info.Architecture = machine()
	open := info
	open.SecurityOptions = nil
	for _, c := range []struct {
		info                 system.Info
		rootless, root, here bool
		why                  string
	}{
		{info, false, true, true, ""},
		{info, false, true, false, "cannot be seen"},
		{info, false, false, true, "as root"},
		{info, true, true, true, "ordinary user's"},
		{info, true, false, true, ""},
		{open, false, true, true, "seccomp"},
	} {
		_, err := podmanCapabilities(c.info, c.rootless, c.root, c.here)
		if (err == nil) != (c.why == "") || err != nil && (!strings.Contains(err.Error(), c.why) ||
			cove.ErrorCode(err) != cove.Unsupported) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
