package main

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mounts are attempts to change what is mounted (P3, H2), and a reading of it.
func mounts() map[string]attempt {
	return map[string]attempt{
		"mount_tmpfs": simple(func() error {
			return onDir(func(d string) error { return unix.Mount("none", d, "tmpfs", 0, "size=4k") })
		}),
		"mount_proc":  simple(func() error { return onDir(func(d string) error { return unix.Mount("proc", d, "proc", 0, "") }) }),
		"mount_sysfs": simple(func() error { return onDir(func(d string) error { return unix.Mount("sysfs", d, "sysfs", 0, "") }) }),
		"mount_cgroup": simple(func() error {
			return onDir(func(d string) error { return unix.Mount("none", d, "cgroup", 0, "none,name=coveprobe") })
		}),
		"mount_cgroup2": simple(func() error { return onDir(func(d string) error { return unix.Mount("none", d, "cgroup2", 0, "") }) }),
		"mount_overlay": simple(func() error {
			return onDir(func(d string) error { return unix.Mount("none", d, "overlay", 0, "lowerdir=/usr:/etc") })
		}),
		"mount_bind":     bindMount,
		"remount_rw":     remountRW,
		"umount":         umount,
		"pivot_root":     simple(func() error { return unix.PivotRoot(".", ".") }),
		"chroot":         simple(func() error { return unix.Chroot(".") }),
		"chroot_escape":  simple(chrootEscape),
		"chroot_reach":   chrootReach,
		"fsopen":         simple(func() error { fd, err := value(unix.SYS_FSOPEN, text("tmpfs"), 1); return closing(fd, err) }),
		"fsconfig":       simple(func() error { return call(unix.SYS_FSCONFIG, all, 0, 0, 0, 0) }),
		"fsmount":        simple(func() error { return call(unix.SYS_FSMOUNT, all, 0, 0) }),
		"fspick":         simple(func() error { fd, err := value(unix.SYS_FSPICK, minus(100), text("/"), 1); return closing(fd, err) }),
		"open_tree":      simple(func() error { fd, err := value(unix.SYS_OPEN_TREE, minus(100), text("/"), 1); return closing(fd, err) }),
		"move_mount":     simple(func() error { return call(unix.SYS_MOVE_MOUNT, all, text(""), all, text(""), 4) }),
		"mount_setattr":  simple(mountSetattr),
		"mountinfo":      func([]string) (report, error) { return readLines("/proc/self/mountinfo") },
		"statmount":      simple(func() error { return call(unix.SYS_STATMOUNT, 0, 0, 0, 0) }),
		"open_tree_attr": simple(func() error { return call(unix.SYS_OPEN_TREE_ATTR, all, text("/"), 1, 0, 0) }),
	}
}

// onDir runs f on a fresh directory under the first writable place.
func onDir(f func(dir string) error) error {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	err = f(dir)
	if err == nil {
		unix.Unmount(dir, unix.MNT_DETACH)
	}
	return err
}

// bindMount binds SOURCE over a directory of the attacker's own.
func bindMount(args []string) (report, error) {
	return report{}, onDir(func(d string) error { return unix.Mount(args[0], d, "", unix.MS_BIND, "") })
}

// remountRW makes TARGET writable; where it is no mount, so is said.
func remountRW(args []string) (report, error) {
	return report{}, unix.Mount("", args[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
}

// umount takes TARGET away.
func umount(args []string) (report, error) {
	return report{}, unix.Unmount(args[0], unix.MNT_DETACH)
}

// chrootReach reads FILE after the classic escape.
func chrootReach(args []string) (report, error) {
	if err := chrootEscape(); err != nil {
		return report{}, err
	}
	b, err := os.ReadFile(args[0])
	return report{detail: string(b)}, err
}

// chrootEscape is the classic: chroot into a subdirectory while keeping a descriptor above it, then walk up.
func chrootEscape() error {
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return onDir(func(d string) error {
		if err := unix.Chroot(d); err != nil {
			return err
		}
		if err := unix.Fchdir(root); err != nil {
			return err
		}
		for range 32 {
			unix.Chdir("..")
		}
		return unix.Chroot(".")
	})
}

func mountSetattr() error {
	var attr struct{ set, clr, propagation, userns uint64 }
	attr.propagation = unix.MS_PRIVATE
	return call(unix.SYS_MOUNT_SETATTR, minus(100), text("/"), 0, at(&attr), unsafe.Sizeof(attr))
}

// readLines reports a file's lines.
func readLines(path string) (report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return report{}, err
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return report{lines: lines, count: int64(len(lines)), detail: fmt.Sprintf("%d bytes", len(b))}, nil
}
