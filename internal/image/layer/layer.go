// Package layer owns the files of a build: layers in the form of overlayfs, the stacks that they make up, and their
// archives.
//
// A layer is a directory with changes to a root filesystem: files and directories that came or changed, devices 0:0 for
// those that went, and user.overlay.opaque at directories that hide what is below. A stack (rootfs.Stack) is a root
// filesystem of a tree and layers above it. Layers, and trees that Clone makes of stacks, share files, so nothing
// writes into one: it is replaced.
//
// Programs of sandboxes wrote layers, and hostile ones. None runs while this package works on them, and paths are
// resolved one component at a time, with the top of the stack as "/": a symbolic link leads nowhere else.
package layer

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// likewise gives a directory the owner, the mode and the time of another.
func likewise(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	return describe(to, st)
}

func describe(dir string, st unix.Stat_t) error {
	if err := os.Lchown(dir, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(dir, st.Mode&0o7777); err != nil {
		return &fs.PathError{Op: "chmod", Path: dir, Err: err}
	}
	return setTime(dir, st.Mtim)
}

func setTime(name string, at unix.Timespec) error {
	times := []unix.Timespec{at, at}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}

func kind(st unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// whiteout reports a file of a layer that stands for one that went.
func whiteout(st unix.Stat_t) bool { return rootfs.Whiteout(st.Mode, st.Rdev) }

// Discard takes what a sandbox itself adds to a layer out of it: files of its own in /etc, and the places where it
// mounts, if what is below has none. A directory that has nothing else then, and is as below, goes as well.
func Discard(changes string, below rootfs.Stack, files, places []string) error {
	v, err := below.Open()
	if err != nil {
		return failure(err, "open a root filesystem")
	}
	defer v.Close()
	for _, name := range files {
		if !direct(changes, name) {
			continue
		}
		if err := remove(filepath.Join(changes, name)); err != nil {
			return failure(err, "tidy a layer")
		}
	}
	for _, name := range places {
		if !direct(changes, name) || !vain(v, changes, name) {
			continue
		}
		if err := remove(filepath.Join(changes, name)); err != nil {
			return failure(err, "tidy a layer")
		}
	}
	return nil
}

// direct reports whether a name in a directory leads through directories alone: a link could lead out of it.
func direct(dir, name string) bool {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, at), &st) != nil || kind(st) != unix.S_IFDIR {
			return false
		}
	}
	return true
}

// remove removes what is there, but no directory with anything in it.
func remove(name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// vain reports whether a place of a layer is not in what is below, or a directory without changes.
func vain(below *rootfs.View, changes, name string) bool {
	info, err := below.Lstat(name)
	if err != nil {
		return true
	}
	old := info.Sys().(*syscall.Stat_t)
	var st unix.Stat_t
	place := filepath.Join(changes, name)
	return unix.Lstat(place, &st) == nil && kind(st) == unix.S_IFDIR && info.IsDir() && st.Mode == old.Mode &&
		st.Uid == old.Uid && st.Gid == old.Gid && !rootfs.Opaque(place)
}

// Clamp sets times of a layer that are later than one to it.
func Clamp(changes string, latest time.Time) error {
	limit := unix.NsecToTimespec(latest.UnixNano())
	err := filepath.WalkDir(changes, func(name string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(name, &st)
		}
		if err != nil || st.Mtim.Nano() <= limit.Nano() {
			return err
		}
		return setTime(name, limit)
	})
	return failure(err, "set the times of a layer")
}

// failure gives an error of the file system its code.
func failure(err error, doing string) error {
	if _, known := errors.AsType[*cove.Error](err); known || err == nil {
		return err
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return cove.Errorf(cove.StorageFull, "%s: %w", doing, err).WithHint("free some space, or run \"cove image prune\"")
	}
	return cove.Errorf(cove.Internal, "%s: %w", doing, err)
}
