package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// devices are attempts at hardware (F2, H2).
func devices() map[string]attempt {
	return map[string]attempt{
		"mknod": mknod,
		"mknod_fifo": simple(func() error {
			return onName(func(p string) error {
				return unix.Mknod(p,
					unix.S_IFIFO|0o600, 0)
			})
		}),
		"dev_tree":    deviceTree,
		"dev_nodes":   deviceNodes,
		"device_copy": simple(deviceCopy),
	}
}

// onName runs f on a path that does not exist yet.
func onName(f func(path string) error) error {
	return onDir(func(d string) error {
		p := d + "/node"
		defer os.Remove(p)
		return f(p)
	})
}

// mknod makes a device node KIND MAJOR MINOR.
func mknod(args []string) (report, error) {
	v, err := numbers(args[1:])
	if err != nil {
		return report{}, err
	}
	mode := uint32(unix.S_IFCHR | 0o600)
	if args[0] == "b" {
		mode = unix.S_IFBLK | 0o600
	}
	return report{}, onName(func(p string) error {
		return unix.Mknod(p, mode, int(unix.Mkdev(uint32(v[0]), uint32(v[1]))))
	})
}

// deviceTree reports everything under /dev, one line each.
func deviceTree([]string) (report, error) {
	var r report
	err := walkFiles("/dev/", func(path string, st *unix.Stat_t) { r.lines = append(r.lines, describe(path, st)) })
	return r, err
}

// deviceNodes reports every device node below DIR and outside /dev.
func deviceNodes(args []string) (report, error) {
	var r report
	err := walkFiles(args[0], func(path string, st *unix.Stat_t) {
		r.count++
		kind := st.Mode & unix.S_IFMT
		if (kind == unix.S_IFCHR || kind == unix.S_IFBLK) && !strings.HasPrefix(path, "/dev/") && st.Rdev != 0 {
			r.lines = append(r.lines, describe(path, st))
		}
	})
	return r, err
}

func describe(path string, st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return fmt.Sprintf("%s c %d:%d", path, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case unix.S_IFBLK:
		return fmt.Sprintf("%s b %d:%d", path, unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case unix.S_IFDIR:
		return path + " d"
	case unix.S_IFLNK:
		target, _ := os.Readlink(path)
		return path + " l " + target
	case unix.S_IFSOCK:
		return path + " s"
	}
	return path + " f"
}

// deviceCopy moves a node that exists to a name of the attacker's own.
func deviceCopy() error {
	return onName(func(p string) error { return os.Link("/dev/null", p) })
}
