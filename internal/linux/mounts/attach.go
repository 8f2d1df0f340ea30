//go:build linux

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

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

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

// current returns the content of a mountinfo as it is now.
func current(table *os.File) (string, error) {
	text, err := io.ReadAll(io.NewSectionReader(table, 0, math.MaxInt64))
	return string(text), err
}

// onThreadOfItsOwn runs f on a thread that ends afterwards. It avoids the main thread, which represents the process to
// others.
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
	place, err := open(a.Target)
	if err != nil {
		return err
	}
	defer unix.Close(place)
	var there, wanted unix.Stat_t
	if err := unix.Fstat(place, &there); err != nil {
		return err
	}
	if err := unix.Fstat(int(a.Tree.Fd()), &wanted); err != nil {
		return err
	}
	if there.Dev != wanted.Dev || there.Ino != wanted.Ino {
		return cove.Errorf(cove.Forbidden, "%s is not the directory or file that was to be attached there", a.Target).
			WithHint("its source was changed meanwhile, or the target is a symbolic link in the image")
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(own, strconv.Itoa(place), text)
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

func open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func put(mount int, point string) error {
	place, err := open(point)
	if err != nil {
		return err
	}
	defer unix.Close(place)
	return move(mount, place)
}

func move(mount, place int) error {
	return os.NewSyscallError("move_mount", unix.MoveMount(mount, "", place, "",
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
