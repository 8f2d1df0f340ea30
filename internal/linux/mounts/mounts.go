//go:build linux

// Package mounts makes detached mounts that map one owner of the host to another, and attaches them in the mount
// namespace of another process.
package mounts

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Clone makes a detached private copy of the mount at a path, without its submounts. The path is relative to a
// directory's descriptor or unix.AT_FDCWD; an empty one means the descriptor itself. What is mounted on the copy does
// not appear on the original, which is a shared mount on hosts with systemd.
func Clone(dir int, path string) (*os.File, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	tree := os.NewFile(uintptr(fd), path)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		tree.Close()
		return nil, fmt.Errorf("make a copy of the mount %s private: %w", path, err)
	}
	return tree, nil
}

// Map makes a detached mount idmapped by a user namespace: from ids inside, the file system's, to ids outside, as seen.
func Map(tree, userns *os.File) error {
	return unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())})
}

// Restrict sets attributes of a detached mount: unix.MOUNT_ATTR_RDONLY and others.
func Restrict(tree *os.File, attributes uint64) error {
	return unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes})
}

// CanMap reports whether the kernel supports Map (5.12). A file system may lack it nevertheless.
func CanMap() bool { return unix.MountSetattr(-1, "", 0, &unix.MountAttr{}) != unix.ENOSYS }

// Owner is the owner of files.
type Owner struct{ UID, GID int }

// Ownership makes a user namespace that maps the owner of to as, by an open program that waits until its standard input
// ends.
func Ownership(program *os.File, args, env []string, of, as Owner) (*os.File, error) {
	var input [2]int
	if err := unix.Pipe2(input[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	pid, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(int(program.Fd())), args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{uintptr(input[0]), program.Fd()}, // else the child may put another file in its place
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: of.UID, HostID: as.UID, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: of.GID, HostID: as.GID, Size: 1}},
		},
	})
	unix.Close(input[0])
	if err != nil {
		unix.Close(input[1])
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	userns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	unix.Close(input[1])
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	return userns, err
}

// Attachment is a detached mount and its target: the same directory or file, through another mount.
type Attachment struct {
	Tree   *os.File
	Target string
}

// Attach enters the mount namespace of a process and attaches there, in this order. Submounts of a target stay in
// place, on top of the attached mount. Errors: Forbidden when a target is a different directory or file.
func Attach(pid int, all []Attachment) error {
	own, err := os.Open("/proc/self/fd") // inside, /proc is a different one
	if err != nil {
		return err
	}
	defer own.Close()
	return inside(pid, func(table *os.File) error {
		for _, a := range all {
			if err := a.attach(int(own.Fd()), table); err != nil {
				return err
			}
		}
		return nil
	})
}

// Harden enters the mount namespace of a process and sets attributes of every mount, chosen by its mount point.
func Harden(pid int, attributes func(point string) uint64) error {
	return inside(pid, func(table *os.File) error {
		mountinfo, err := current(table)
		if err != nil {
			return err
		}
		for _, point := range append([]string{"/"}, Below(mountinfo, "")...) {
			err := unix.MountSetattr(unix.AT_FDCWD, point, unix.AT_SYMLINK_NOFOLLOW,
				&unix.MountAttr{Attr_set: attributes(point)})
			if err != nil && err != unix.ENOENT { // covered by another mount
				return fmt.Errorf("mount_setattr %s: %w", point, err)
			}
		}
		return nil
	})
}

// Change says what becomes of a file system that is mounted.
type Change struct {
	Point   string
	Options []string // NAME=VALUE of the file system, besides those that it has
	Owner   *Owner   // of its root directory
}

// Reconfigure enters the mount namespace of a process and changes file systems there. A point at which none is mounted,
// or to which a symbolic link leads, is an error.
func Reconfigure(pid int, all ...Change) error {
	return inside(pid, func(table *os.File) error {
		mountinfo, err := current(table)
		if err != nil {
			return err
		}
		for _, c := range all {
			if err := c.apply(mountinfo); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c Change) apply(mountinfo string) error {
	place, err := unix.Openat2(unix.AT_FDCWD, c.Point, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("open %s: %w", c.Point, err)
	}
	defer unix.Close(place)
	device, options := mounted(mountinfo, c.Point)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	if device != fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)) {
		return fmt.Errorf("no file system of its own is mounted at %s", c.Point)
	}
	fs, err := unix.Fspick(place, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fspick %s: %w", c.Point, err)
	}
	defer unix.Close(fs)
	// An option that is not given again falls back to the kernel's default. The table has ids of the first user
	// namespace, which may be none here: tmpfs takes none after it was mounted, and devpts those of the change.
	options = slices.DeleteFunc(options, func(o string) bool {
		return strings.HasPrefix(o, "uid=") || strings.HasPrefix(o, "gid=")
	})
	for _, option := range append(options, c.Options...) {
		name, value, ok := strings.Cut(option, "=")
		if !ok {
			continue // ro and rw are none of the file system's own
		}
		if err := unix.FsconfigSetString(fs, name, value); err != nil {
			return fmt.Errorf("option %s of %s: %w", option, c.Point, err)
		}
	}
	if err := unix.FsconfigReconfigure(fs); err != nil {
		return fmt.Errorf("reconfigure %s: %w", c.Point, err)
	}
	if c.Owner == nil {
		return nil
	}
	if err := unix.Fchownat(place, "", c.Owner.UID, c.Owner.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("chown %s: %w", c.Point, err)
	}
	return nil
}

// mounted describes the file system that is mounted last at a point: its device as MAJOR:MINOR, and its options.
func mounted(mountinfo, point string) (device string, options []string) {
	for line := range strings.Lines(mountinfo) {
		mount, fs, _ := strings.Cut(line, " - ")
		if m, f := strings.Fields(mount), strings.Fields(fs); len(m) > 4 && m[4] == point && len(f) > 2 {
			device, options = m[2], strings.Split(f[2], ",")
		}
	}
	return device, options
}

// inside runs f in the mount namespace of a process; table is its mountinfo.
func inside(pid int, f func(table *os.File) error) error {
	theirs, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer theirs.Close()
	table, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return err
	}
	defer table.Close()
	return onThreadOfItsOwn(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns(2) refuses a thread that shares its root
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNS); err != nil {
			return cove.Errorf(cove.Forbidden, "cannot enter the mount namespace of process %d: %w", pid,
				err).WithHint("run it as root")
		}
		return f(table)
	})
}

func current(table *os.File) (string, error) {
	text, err := io.ReadAll(io.NewSectionReader(table, 0, math.MaxInt64))
	return string(text), err
}

// onThreadOfItsOwn runs f on a thread that ends afterwards, never the main one, which represents the process to others.
func onThreadOfItsOwn(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends, unless it is the main one
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		err := onThreadOfItsOwn(f)
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// attach runs on a thread in the namespace; own is the directory of this process's descriptors.
func (a Attachment) attach(own int, table *os.File) error {
	place, err := os.OpenFile(a.Target, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer place.Close()
	there, err := place.Stat()
	if err != nil {
		return err
	}
	wanted, err := a.Tree.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(there, wanted) {
		return cove.Errorf(cove.Forbidden, "%s is not the directory or file that was to be attached there", a.Target).
			WithHint("its source was changed meanwhile, or the target is a symbolic link in the image")
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(own, strconv.Itoa(int(place.Fd())), text)
	if err != nil {
		return err
	}
	mountinfo, err := current(table)
	if err != nil {
		return err
	}
	below := map[string]int{}
	defer func() {
		for _, fd := range below {
			unix.Close(fd)
		}
	}()
	for _, point := range outermost(Below(mountinfo, string(text[:n]))) {
		if below[point], err = unix.OpenTree(unix.AT_FDCWD, point, unix.OPEN_TREE_CLOEXEC); err != nil {
			delete(below, point)
			return fmt.Errorf("open_tree %s: %w", point, err)
		}
	}
	if err := move(int(a.Tree.Fd()), place); err != nil {
		return fmt.Errorf("attach at %s: %w", a.Target, err)
	}
	for point, fd := range below {
		if err := put(fd, point); err != nil {
			return fmt.Errorf("put back %s: %w", point, err)
		}
	}
	return nil
}

func put(mount int, point string) error {
	place, err := os.OpenFile(point, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer place.Close()
	return move(mount, place)
}

func move(mount int, place *os.File) error {
	return os.NewSyscallError("move_mount", unix.MoveMount(mount, "", int(place.Fd()), "",
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// Below returns the mount points below a directory, parents first, of a table in the format of mountinfo (proc(5)).
func Below(mountinfo, dir string) []string {
	var found []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if !slices.Contains(found, point) {
			found = append(found, point)
		}
	}
	slices.Sort(found)
	return found
}

// outermost drops points below another; parents come first.
func outermost(points []string) []string {
	var out []string
	for _, p := range points {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(p, o+"/") }) {
			out = append(out, p)
		}
	}
	return out
}
