//go:build linux

package docker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// weaknesses lists where the container of a process is weaker than what was asked for, as the kernel shows it. It is
// looked at while nothing but the guest runs there.
func weaknesses(pid int, asked *container.HostConfig, group *cgroup.Group) ([]string, error) {
	read := func(name string) (string, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		return string(text), err
	}
	status, err := read("status")
	if err != nil {
		return nil, err
	}
	mountinfo, err := read("mountinfo")
	if err != nil {
		return nil, err
	}
	all := slices.Concat(weakStatus(status, asked.CapAdd), weakMounts(mountinfo, asked, exists))
	if devices, err := nodes(fmt.Sprintf("/proc/%d/root/dev", pid)); err != nil {
		return nil, err
	} else if len(devices) > 0 {
		all = append(all, "devices of the host are in /dev: "+strings.Join(devices, ", "))
	}
	limits, err := group.Limits()
	if err != nil {
		return nil, err
	}
	return append(all, weakLimits(limits, asked)...), nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// weakStatus judges a process by its /proc/PID/status.
func weakStatus(status string, caps []string) []string {
	var all []string
	field := map[string]string{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		field[name] = strings.TrimSpace(value)
	}
	if field["NoNewPrivs"] != "1" {
		all = append(all, "programs may gain privileges")
	}
	if field["Seccomp"] != "2" {
		all = append(all, "no system calls are filtered")
	}
	allowed := uint64(0)
	for _, c := range caps {
		allowed |= 1 << capNumbers[c]
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if has, err := strconv.ParseUint(field[set], 16, 64); err != nil || has&^allowed != 0 {
			all = append(all, fmt.Sprintf("the capabilities %s are %q", set, field[set]))
		}
	}
	return all
}

// weakEnv judges the environment of a first process, to which the image's must not speak. Podman itself sets a few.
func weakEnv(has, image []string) []string {
	var all []string
	for _, kv := range image {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(has, kv) && !slices.Contains([]string{"PATH", "HOME", "TERM", "HOSTNAME", "container"}, name) {
			all = append(all, "the image's variable "+name+" is in force")
		}
	}
	return all
}

// weakIDs judges the ids of a container of this user's own: the sandbox's user is this user, and so owns what this user
// does, and root inside has a subordinate id.
func weakIDs(pid int, user cove.User) ([]string, error) {
	var all []string
	for _, m := range []struct {
		name      string
		user, own int
	}{{"uid_map", user.UID, os.Geteuid()}, {"gid_map", user.GID, os.Getegid()}} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, m.name))
		if err != nil {
			return nil, err
		}
		if !keeps(string(text), m.user, m.own) {
			all = append(all, fmt.Sprintf("its %s is %q", m.name, strings.Join(strings.Fields(string(text)), " ")))
		}
	}
	return all, nil
}

// keeps reports whether the lines of a map of ids (user_namespaces(7)) give an id inside one of the host, and root
// another that is not root's.
func keeps(text string, inside, own int) bool {
	var lines local.IDLines
	for line := range strings.Lines(text) {
		var l local.IDLine
		if n, err := fmt.Sscan(line, &l.Inside, &l.Host, &l.Size); n != 3 || err != nil {
			return false
		}
		lines = append(lines, l)
	}
	root := lines.OnHost(0)
	return lines.OnHost(inside) == own && root > 0 && root != own
}

var capNumbers = map[string]uint{"KILL": unix.CAP_KILL, "SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID,
	"SETPCAP": unix.CAP_SETPCAP}

// mounted is a line of a table of mounts.
type mounted struct {
	root, point string
	flags       []string // of the mount
	kind        string
	options     []string // of the file system
}

func (m mounted) has(flag string) bool { return slices.Contains(m.flags, flag) }

// topmost are the mounts that a path leads to, by their points.
func topmost(mountinfo string) map[string]mounted {
	all := map[string]mounted{}
	for line := range strings.Lines(mountinfo) {
		mount, fs, _ := strings.Cut(line, " - ")
		m, f := strings.Fields(mount), strings.Fields(fs)
		if len(m) > 5 && len(f) > 2 {
			all[m[4]] = mounted{m[3], m[4], strings.Split(m[5], ","), f[0], strings.Split(f[2], ",")}
		}
	}
	return all
}

// weakMounts judges a container by its table of mounts; exists reports whether the kernel has a path.
func weakMounts(mountinfo string, asked *container.HostConfig, exists func(string) bool) []string {
	var all []string
	there := topmost(mountinfo)
	if m, ok := there["/"]; asked.ReadonlyRootfs && (!ok || !m.has("ro")) {
		all = append(all, "the root filesystem is writable")
	}
	expected := map[string]bool{"/": true, "/proc": true, "/dev": true, "/dev/pts": true}
	for _, name := range asked.MaskedPaths {
		expected[name] = true
		m, is := there[name]
		switch empty := m.kind == "tmpfs" && m.has("ro") || m.root == "/null"; {
		case !is && exists(name), is && !empty:
			all = append(all, name+" is not hidden")
		}
	}
	for _, name := range asked.ReadonlyPaths {
		expected[name] = true
		if m, is := there[name]; !is && exists(name) || is && !m.has("ro") {
			all = append(all, name+" is writable")
		}
	}
	for name, options := range asked.Tmpfs {
		expected[name] = true
		all = append(all, weakPlace(name, there[name], strings.Split(options, ","))...)
	}
	for _, m := range asked.Mounts {
		name := path.Clean(m.Target)
		expected[name] = true
		is, ok := there[name]
		if !ok || m.ReadOnly && !is.has("ro") || !is.has("nosuid") || !strings.HasPrefix(name, "/dev/") && !is.has("nodev") {
			all = append(all, fmt.Sprintf("the mount at %s is %v", name, is.flags))
		}
	}
	// All other mounts can be looked at only, or are hidden.
	for name, m := range there {
		hidden := slices.ContainsFunc(asked.MaskedPaths, func(p string) bool { return strings.HasPrefix(name, p+"/") })
		if !expected[name] && !hidden && !(m.kind == "proc" && m.has("ro")) && !podmanOwn(m) {
			all = append(all, "something is mounted at "+name)
		}
	}
	slices.Sort(all)
	return all
}

// podmanOwn reports what Podman mounts in every container: an empty file that says so, those that name it, what of
// /proc it hides besides, and the usual devices where no user may make any.
func podmanOwn(m mounted) bool {
	switch {
	case strings.HasPrefix(m.point, "/proc/"):
		return m.kind == "tmpfs" && m.has("ro") || m.root == "/null"
	case path.Dir(m.point) == "/dev":
		return usual[path.Base(m.point)] != 0 && m.root == "/"+path.Base(m.point) // whose number is looked at
	case slices.Contains([]string{"/etc/hostname", "/run/.containerenv"}, m.point):
		return strings.HasSuffix(m.root, "/userdata/"+path.Base(m.point))
	}
	return false
}

// weakPlace judges a tmpfs by the options that were asked for.
func weakPlace(name string, is mounted, options []string) []string {
	if is.kind != "tmpfs" {
		return []string{name + " is no file system of the container's own"}
	}
	var all []string
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		ok := true
		switch key {
		case "nosuid", "nodev", "noexec", "ro":
			ok = is.has(key)
		case "size":
			kib, err := strconv.ParseInt(value, 10, 64)
			ok = err == nil && slices.Contains(is.options, fmt.Sprintf("size=%dk", kib/1024))
		case "nr_inodes":
			ok = slices.Contains(is.options, o)
		}
		if !ok {
			all = append(all, fmt.Sprintf("%s has no %s", name, o))
		}
	}
	return all
}

// weakLimits judges what a control group allows.
func weakLimits(is cgroup.Limits, asked *container.HostConfig) []string {
	var all []string
	if asked.Memory > 0 && (is.Memory <= 0 || is.Memory > asked.Memory) {
		all = append(all, fmt.Sprintf("the memory limit is %d", is.Memory))
	}
	if asked.NanoCPUs > 0 && (is.CPUs <= 0 || is.CPUs > float64(asked.NanoCPUs)/1e9+1e-4) {
		all = append(all, fmt.Sprintf("the limit of processors is %g", is.CPUs))
	}
	if *asked.PidsLimit > 0 && (is.PIDs <= 0 || is.PIDs > *asked.PidsLimit) {
		all = append(all, fmt.Sprintf("the limit of tasks is %d", is.PIDs))
	}
	return all
}

// usual are the device nodes of a container, by their numbers; 0 is any.
var usual = map[string]uint64{"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7),
	"random": unix.Mkdev(1, 8), "urandom": unix.Mkdev(1, 9), "tty": unix.Mkdev(5, 0), "console": 0, "ptmx": 0}

// nodes lists the device nodes in a directory that a container does not have by itself.
func nodes(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		number, known := usual[e.Name()]
		var is unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, e.Name()), &is); err != nil {
			return nil, os.NewSyscallError("lstat", err)
		}
		device := is.Mode&unix.S_IFMT == unix.S_IFCHR
		if known && number != 0 && (!device || is.Rdev != number) ||
			!known && (device || is.Mode&unix.S_IFMT == unix.S_IFBLK) {
			all = append(all, filepath.Base(e.Name()))
		}
	}
	return all, nil
}
