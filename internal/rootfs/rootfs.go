// Package rootfs defines a sandbox's root filesystem for every engine: the host directories in the default root, the
// content of its /etc, and the masked places of /proc and /sys.
package rootfs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Path is the PATH of sandboxes; Go's own distribution installs to the last directory.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"

// Link is a symbolic link of the root.
type Link struct{ Name, Target string }

// File is a generated file of the root.
type File struct {
	Name string
	Mode uint32
	Data string
}

// Host is the part of the default root that comes from the host's own toolchain.
type Host struct {
	Dirs  []string // shown read-only under the same name
	Links []Link   // such as /bin → usr/bin on a merged-usr system
	// Etc are files and directories of /etc that programs need to start: the dynamic linker's cache, the alternatives,
	// certificates, the time zone. They contain no secret and nothing about the host's users.
	Etc []string
}

// toolchain are the candidate directories; nothing of /root, /home, /var, /opt or /srv.
var toolchain = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

var etc = []string{
	"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	"/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/localtime", "/etc/services",
	"/etc/java-*-openjdk/security", // Debian's, without which Java has no TLS
}

// ReadHost reads this host's toolchain directories.
func ReadHost() (Host, error) {
	var h Host
	for _, dir := range toolchain {
		fi, err := os.Lstat(dir)
		switch {
		case err != nil:
			continue
		case fi.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(dir)
			if err != nil {
				return Host{}, err
			}
			h.Links = append(h.Links, Link{Name: dir, Target: target})
		case fi.IsDir():
			h.Dirs = append(h.Dirs, dir)
		}
	}
	if len(h.Dirs) == 0 {
		return Host{}, cove.Errorf(cove.ImageMissing, "this host has no /usr to build the default root filesystem from").
			WithHint("use an image: --image IMAGE, after \"cove image pull IMAGE\"")
	}
	for _, pattern := range etc {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return Host{}, err
		}
		for _, name := range found {
			if _, err := os.Stat(name); err == nil {
				h.Etc = append(h.Etc, name)
			}
		}
	}
	return h, nil
}

// Sysctl is a setting of the kernel, by its path below /proc/sys.
type Sysctl struct{ Name, Value string }

// ReadWatches returns the settings of a sandbox's user namespace by which it has half of the inotify instances and
// watches that this host allows a user: the kernel counts those of a sandbox for the user who made it, too.
func ReadWatches() []Sysctl {
	var settings []Sysctl
	for _, count := range []string{"instances", "watches"} {
		text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_" + count)
		if err != nil {
			continue // a kernel without inotify
		}
		if most, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			settings = append(settings, Sysctl{"user/max_inotify_" + count, strconv.Itoa(most / 2)})
		}
	}
	return settings
}

// EtcFiles returns the generated files of /etc for a user. An image with its own users gets only those of Resolver.
func EtcFiles(hostname string, u cove.User) []File {
	users := fmt.Sprintf("root:x:0:0:root:/root:/usr/sbin/nologin\n"+
		"cove:x:1000:1000:cove:%s:/bin/sh\nnobody:x:65534:65534:nobody:%[1]s:/usr/sbin/nologin\n", cove.Home)
	groups := "root:x:0:\ntty:x:5:\ncove:x:1000:\nnogroup:x:65534:\n"
	if u != cove.CodeUser && u != cove.AgentUser { // first: the first line with an id determines its name
		users = fmt.Sprintf("%s:x:%d:%d:%[1]s:%[4]s:%s\n", u.Name, u.UID, u.GID, u.Home, u.Shell) + users
		groups = fmt.Sprintf("%s:x:%d:\n", u.Name, u.GID) + groups
	}
	return append([]File{
		{Name: "/etc/passwd", Mode: 0o644, Data: users},
		{Name: "/etc/group", Mode: 0o644, Data: groups},
		{Name: "/etc/nsswitch.conf", Mode: 0o644,
			Data: "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"},
	}, Resolver(hostname)...)
}

// Resolver returns the files of /etc with the sandbox's name and addresses. They name no name server: a lookup is
// refused at once on the loopback interface.
func Resolver(hostname string) []File {
	return []File{
		{Name: "/etc/hostname", Mode: 0o644, Data: hostname + "\n"},
		{Name: "/etc/hosts", Mode: 0o644, Data: "127.0.0.1 localhost " + hostname +
			"\n::1 localhost ip6-localhost ip6-loopback\n"},
		{Name: "/etc/resolv.conf", Mode: 0o644, Data: "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"},
	}
}

// Hostname is the same for every sandbox, and reveals nothing about the host.
const Hostname = "cove"

// Masked are hidden: the OCI runtime specification's default list, further files of /proc about the kernel, and
// counters of the whole machine, by which one sandbox could tell another something, as by locks, which name their
// ranges. Programs need the account of memory, load and processors, which stays. /sys is not mounted at all. Places
// below /proc/sys are hidden after it has become read-only.
var Masked = []string{
	"/proc/acpi", "/proc/asound", "/proc/buddyinfo", "/proc/cgroups", "/proc/diskstats", "/proc/driver",
	"/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg",
	"/proc/latency_stats", "/proc/locks", "/proc/modules", "/proc/partitions", "/proc/pressure", "/proc/sched_debug",
	"/proc/schedstat", "/proc/scsi", "/proc/softirqs", "/proc/timer_list", "/proc/timer_stats", "/proc/vmstat",
	"/proc/zoneinfo",
	"/proc/sys/fs/aio-nr", "/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
	"/proc/sys/fs/inode-state", "/proc/sys/kernel/pty/nr",
}

// ReadOnly are visible but not writable.
var ReadOnly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// Devices are the nodes of /dev, besides the terminals'.
var Devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Terminals is how many pseudo-terminals a sandbox has at most: twice as many as Cove opens in one. The kernel has some
// thousand for the whole machine.
const Terminals = 64

// DeviceLinks are the usual links of /dev.
var DeviceLinks = []Link{
	{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
	{"/dev/stderr", "/proc/self/fd/2"}, {"/dev/ptmx", "pts/ptmx"}, {"/dev/core", "/dev/null"},
}

// Writable is a directory inside that the user may write. All writable directories share the sandbox's disk limit.
type Writable struct {
	Name string
	Mode uint32
	Own  bool // owned by the user
	Temp bool // for what programs need for a while
}

// Writables are the writable directories of every sandbox of a user. The home of an image's own user is not among them:
// it is as the image has it.
func Writables(u cove.User) []Writable {
	home := u.Home
	if u.IsOfImage() {
		home = cove.Home
	}
	return []Writable{
		{Name: "/tmp", Mode: 0o1777, Temp: true},
		{Name: "/var/tmp", Mode: 0o1777, Temp: true},
		{Name: "/run", Mode: 0o755, Own: true, Temp: true},
		{Name: "/dev/shm", Mode: 0o1777, Temp: true},
		{Name: home, Mode: 0o700, Own: true},
		{Name: cove.WorkDir, Mode: 0o755, Own: true},
	}
}

// Env is the environment that every process of a user starts from.
func Env(u cove.User) []string {
	return []string{
		"PATH=" + Path, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=" + u.Shell,
		"LANG=C.UTF-8", "TMPDIR=/tmp", "COVE=1",
	}
}

// Own is the directory inside for Cove's own files.
const Own = "/run/cove"

// ValidateTarget refuses mount targets that would hide what the wall depends on, or parts of a toolchain.
func ValidateTarget(target string) error {
	return validate(target, "/proc", "/sys", "/dev", Own, "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64")
}

// ValidatePlace refuses mount targets that would hide what the wall depends on.
func ValidatePlace(target string) error { return validate(target, "/proc", "/sys", "/dev", Own) }

func validate(target string, own ...string) error {
	clean := path.Clean(target)
	refuse := func(why string) error {
		return cove.Errorf(cove.InvalidArgument, "a mount at %q is not possible: %s", target, why).
			WithHint("mount below %s, %s or a directory of your own such as /data", cove.Workspace, cove.WorkDir)
	}
	switch {
	case !path.IsAbs(target) || strings.IndexByte(target, 0) >= 0:
		return refuse("the target must be an absolute path")
	case clean == "/":
		return refuse("it would hide the whole root")
	}
	for _, place := range own {
		if clean == place || strings.HasPrefix(clean, place+"/") {
			return refuse(place + " belongs to the sandbox")
		}
	}
	return nil
}

// LastWins drops of several values of a variable all but the last.
func LastWins(env []string) []string {
	last := map[string]int{}
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		last[k] = i
	}
	merged := env[:0:0]
	for i, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); last[k] == i {
			merged = append(merged, kv)
		}
	}
	return merged
}

// WithVariables appends variables to an environment.
func WithVariables(env []string, more map[string]string) []string {
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	return env
}

// InFront appends a PATH that begins with a directory; an empty one changes nothing.
func InFront(env []string, dir string) []string {
	if dir == "" {
		return env
	}
	path := ""
	for _, v := range env { // the last one counts
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	return append(env, "PATH="+dir+":"+path)
}
