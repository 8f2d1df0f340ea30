// Package layer owns the files of a build: trees that share files by hard links, layers above them in the form of
// overlayfs, and their archives.
//
// A tree is a directory with a whole root filesystem. A layer is a directory with changes to one: files and directories
// that came or changed, devices 0:0 for those that went, and user.overlay.opaque at directories that hide what is
// below. [Apply] brings a tree up to date with a layer. Files of a tree are links to those of layers and images, so
// nothing writes into one: it is replaced.
//
// Programs of sandboxes wrote layers, and hostile ones. None runs while this package works on a tree or a layer, and
// paths are resolved one component at a time, with the tree as "/": a symbolic link of a tree leads nowhere else.
package layer

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
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

// Apply brings a tree up to date with the changes of a layer.
func Apply(changes, tree string) error { return failure(apply(changes, tree), "apply a layer") }

func apply(changes, tree string) error {
	entries, err := os.ReadDir(changes)
	if err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(changes, e.Name()), filepath.Join(tree, e.Name())
		var st, old unix.Stat_t
		if err := unix.Lstat(src, &st); err != nil {
			return &fs.PathError{Op: "stat", Path: src, Err: err}
		}
		there := unix.Lstat(dst, &old) == nil
		isDir := kind(st) == unix.S_IFDIR
		if there && (!isDir || kind(old) != unix.S_IFDIR || opaque(src)) {
			if err := os.RemoveAll(dst); err != nil {
				return err
			}
			there = false
		}
		switch kind(st) {
		case unix.S_IFDIR:
			if !there {
				err = os.Mkdir(dst, 0o700)
			}
			if err == nil {
				err = apply(src, dst)
			}
		case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO:
			err = os.Link(src, dst)
		}
		if err != nil {
			return err
		}
	}
	return likewise(changes, tree)
}

func kind(st unix.Stat_t) uint32 { return st.Mode & unix.S_IFMT }

// whiteout reports a file of a layer that stands for one that went.
func whiteout(st unix.Stat_t) bool { return kind(st) == unix.S_IFCHR && st.Rdev == 0 }

func opaque(dir string) bool {
	var value [8]byte
	n, err := unix.Lgetxattr(dir, "user.overlay.opaque", value[:])
	return err == nil && string(value[:n]) == "y"
}

// Discard takes what a sandbox itself adds to a layer out of it: files of its own in /etc, and the places where it
// mounts, if the tree below has none. A directory that has nothing else then, and is as in the tree, goes as well.
func Discard(changes, tree string, files, places []string) error {
	for _, name := range files {
		if !direct(changes, name) {
			continue
		}
		if err := remove(filepath.Join(changes, name)); err != nil {
			return failure(err, "tidy a layer")
		}
	}
	for _, name := range places {
		if !direct(changes, name) || !vain(filepath.Join(changes, name), filepath.Join(tree, name)) {
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

// vain reports whether a place of a layer is none of the tree's, or a directory without changes.
func vain(place, below string) bool {
	var st, old unix.Stat_t
	if unix.Lstat(below, &old) != nil {
		return true
	}
	return unix.Lstat(place, &st) == nil && kind(st) == unix.S_IFDIR && kind(old) == unix.S_IFDIR && st.Mode == old.Mode &&
		st.Uid == old.Uid && st.Gid == old.Gid && !opaque(place)
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

// maxLinks is the most symbolic links of one path.
const maxLinks = 255

// resolve returns what a path means in a tree: a clean path without symbolic links, relative to the tree's top, whose
// last components may be missing. look returns a place's properties by such a path.
func resolve(name string, look func(string) (fs.FileInfo, error), read func(string) (string, error)) (string, error) {
	left, at := strings.Split(name, "/"), "."
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := look(next)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err != nil {
			return "", err
		}
		target, err := read(next)
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", cove.Errorf(cove.InvalidArgument, "%.200q has more than %d symbolic links", name, maxLinks)
		}
		if path.IsAbs(target) {
			at = "."
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return at, nil
}

// Find returns the path on the host of a file or directory of a tree; ok says that it is there.
func Find(tree, name string) (place string, info fs.FileInfo, ok bool) {
	real, err := Resolve(tree, name)
	if err != nil {
		return "", nil, false
	}
	place = filepath.Join(tree, real)
	info, err = os.Lstat(place)
	return place, info, err == nil
}

// Resolve returns what a path means in a tree: one relative to its top, without symbolic links, whose last components
// may be missing.
func Resolve(tree, name string) (string, error) {
	on := func(p string) string { return filepath.Join(tree, p) }
	real, err := resolve(name, func(p string) (fs.FileInfo, error) { return os.Lstat(on(p)) },
		func(p string) (string, error) { return os.Readlink(on(p)) })
	return real, failure(err, "find "+name)
}

// leastFree is how many bytes of the disk builds leave.
const leastFree = 512 << 20

// Spare refuses that a build writes more where the disk of a directory is nearly full. Errors: StorageFull.
func Spare(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && int64(st.Bavail)*st.Bsize < leastFree {
		return cove.Errorf(cove.StorageFull, "the disk of the images has less than %d MiB left", leastFree>>20).
			WithHint("free some space, or run \"cove image prune\"")
	}
	return nil
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
