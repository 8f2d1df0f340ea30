package selftest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/vmtest/protocol"
)

const cgroupRoot = "/sys/fs/cgroup"

func account(t *testing.T) protocol.Account {
	t.Helper()
	name := os.Getenv("COVE_TEST_IN_VM")
	if name == "" {
		t.Skip("checks the test VM from inside; TestSelf of test/vmtest runs it there")
	}
	return protocol.Account(name)
}

func TestKernel(t *testing.T) {
	account(t)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	t.Logf("Linux %s, uid %d", unix.ByteSliceToString(name.Release[:]), os.Getuid())
}

func TestCgroupVersion2Only(t *testing.T) {
	account(t)
	var fs unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Errorf("%s has type %#x, want cgroup2", cgroupRoot, fs.Type)
	}
	if mounts := read(t, "/proc/self/mounts"); strings.Contains(mounts, " cgroup ") {
		t.Errorf("control groups v1 are mounted:\n%s", mounts)
	}
}

// ownCgroup is the directory of the control group this process is in.
func ownCgroup(t *testing.T) string {
	t.Helper()
	line, ok := strings.CutPrefix(strings.TrimSpace(read(t, "/proc/self/cgroup")), "0::")
	if !ok || strings.Contains(line, "\n") {
		t.Fatalf("/proc/self/cgroup is not of version 2 alone: %q", line)
	}
	return filepath.Join(cgroupRoot, line)
}

func TestControllers(t *testing.T) {
	who := account(t)
	for dir := filepath.Dir(ownCgroup(t)); ; dir = filepath.Dir(dir) {
		got := strings.Fields(read(t, filepath.Join(dir, "cgroup.subtree_control")))
		for _, c := range []string{"cpu", "memory", "pids"} {
			// Somebody's slices have what they are given, those above have all.
			want := c != "cpu" || who != protocol.Partial || !strings.Contains(dir, "user-1002.slice")
			if slices.Contains(got, c) != want {
				t.Errorf("%s for %s: %s in %v is %v, want %v", dir, who, c, got, !want, want)
			}
		}
		if dir == cgroupRoot {
			return
		}
	}
}

// TestDelegation makes a control group beside this process's own scope, and
// gives it limits and a process, as an engine does.
func TestDelegation(t *testing.T) {
	who := account(t)
	parent := filepath.Dir(filepath.Dir(ownCgroup(t))) // user@N.service, user-N.slice, user.slice
	if who == protocol.Service {
		parent = leaveOwnCgroup(t)
	}
	group := filepath.Join(parent, "selftest")
	err := os.Mkdir(group, 0o755)
	if who == protocol.Undelegated {
		if !errors.Is(err, os.ErrPermission) {
			t.Fatalf("make %s: %v, want permission denied", group, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	}()
	limits := map[string]string{"memory.max": "67108864", "pids.max": "20", "cpu.max": "50000 100000"}
	if who == protocol.Partial {
		delete(limits, "cpu.max")
	}
	for name, value := range limits {
		if err := os.WriteFile(filepath.Join(group, name), []byte(value), 0); err != nil {
			t.Error(err)
		}
	}
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/bin/cat", "/proc/self/cgroup")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "/selftest") {
		t.Errorf("a process started in it: %v, in %s", err, out)
	}
}

// leaveOwnCgroup moves this process to a leaf of its control group, so that
// the group can have controllers in its children, and returns it.
func leaveOwnCgroup(t *testing.T) string {
	t.Helper()
	own := ownCgroup(t)
	leaf := filepath.Join(own, "leaf")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(leaf, "cgroup.procs"), "0")
	write(t, filepath.Join(own, "cgroup.subtree_control"), "+cpu +memory +pids")
	t.Cleanup(func() {
		write(t, filepath.Join(own, "cgroup.subtree_control"), "-cpu -memory -pids")
		write(t, filepath.Join(own, "cgroup.procs"), "0")
		if err := os.Remove(leaf); err != nil {
			t.Error(err)
		}
	})
	return own
}

// inNamespaces runs a script as root of a user and a mount namespace.
func inNamespaces(t *testing.T, script string) (string, error) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-euc", script)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func TestUserNamespace(t *testing.T) {
	account(t)
	if out, err := inNamespaces(t, "id -u"); err != nil || out != "0" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestOverlay(t *testing.T) {
	account(t)
	out, err := inNamespaces(t, `mount -t tmpfs none . && cd "$PWD"
		mkdir l u w m && echo below >l/f
		mount -t overlay none -o lowerdir=l,upperdir=u,workdir=w m
		echo above >m/g && cat m/f u/g`)
	if err != nil || out != "below\nabove" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestSubordinateIDs(t *testing.T) {
	who := account(t)
	out, err := exec.Command("/usr/bin/unshare", "--user", "--map-root-user", "--map-auto", "cat", "/proc/self/uid_map").
		CombinedOutput()
	if has := err == nil && strings.Contains(string(out), "100000"); has != (who != protocol.Root &&
		who != protocol.NoRange && who != protocol.Partial) {
		t.Errorf("%s: %v: %s", who, err, out)
	}
}

// TestIdmappedMount maps a directory of ext4 to other ids, which only root can.
func TestIdmappedMount(t *testing.T) {
	if account(t) != protocol.Root {
		t.Skip("idmapped mounts of the root file system are root's to make")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("/bin/cat")
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: 70000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 70000, Size: 1}},
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = holder.Wait() }()
	userns, err := os.Open(filepath.Join("/proc", strconv.Itoa(holder.Process.Pid), "ns/user"))
	if err != nil {
		t.Fatal(err)
	}
	defer userns.Close()

	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(tree, "f", &stat, 0); err != nil {
		t.Fatal(err)
	}
	if stat.Uid != 70000 {
		t.Errorf("the file belongs to %d, want 70000", stat.Uid)
	}
}

// TestOOMScore shows the trap of sessions that systemd starts: who has raised the score cannot lower it to zero.
func TestOOMScore(t *testing.T) {
	who := account(t)
	const file = "/proc/self/oom_score_adj"
	before := strings.TrimSpace(read(t, file))
	write(t, file, "1000")
	defer write(t, file, before)
	err := os.WriteFile(file, []byte("0"), 0)
	if trap := who == protocol.Delegated || who == protocol.NoRange ||
		who == protocol.Partial; trap != errors.Is(err, os.ErrPermission) {
		t.Errorf("%s, score %s: set 0: %v", who, before, err)
	}
}

func TestToolchains(t *testing.T) {
	account(t)
	for _, args := range [][]string{{"python3", "--version"}, {"node", "--version"}, {"bash", "--version"}, {"perl", "-v"},
		{"ruby", "--version"}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
}

func TestNoNetwork(t *testing.T) {
	account(t)
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name() != "lo" {
			t.Errorf("the VM has a network interface: %s", link.Name())
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Error(err)
	}
}
