package unpack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

func (t *Tree) forget() {
	if t.at.fd >= 0 {
		unix.Close(t.at.fd)
	}
	t.at = parent{fd: -1}
}

// enter opens a directory by its clean path and caches it. With create, missing components are made, as archives may
// omit them.
func (t *Tree) enter(path string, create bool) (parent, error) {
	if t.at.fd >= 0 && t.at.path == path {
		return t.at, nil
	}
	p, err := t.open(path)
	if err != nil && create && errors.Is(err, fs.ErrNotExist) {
		p, err = t.makePath(path)
	}
	if err != nil {
		return parent{}, err
	}
	t.forget()
	t.at = p
	return p, nil
}

func (t *Tree) makePath(path string) (parent, error) {
	dir, base := split(path)
	if path == "." {
		return parent{}, unix.ENOENT // the root itself is gone
	}
	up, err := t.enter(dir, true)
	if err != nil {
		return parent{}, err
	}
	if err := t.mkdir(up, base); err != nil {
		return parent{}, err // EEXIST: a dangling symlink is in the way
	}
	return t.open(path)
}

// mkdir makes a directory that a later entry may describe.
func (t *Tree) mkdir(up parent, base string) error {
	if err := unix.Mkdirat(up.fd, base, 0o700); err != nil {
		return err
	}
	if t.owners { // a set-group-id directory may pass its group on
		if err := unix.Fchownat(up.fd, base, 0, 0, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return t.describe(up, base, undescribed(t.now))
}

// describe records what Finish gives a directory.
func (t *Tree) describe(up parent, base string, m dirMeta) error {
	var st unix.Stat_t
	if err := unix.Fstatat(up.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	t.dirs[st.Ino] = m
	return nil
}

// open resolves a clean path to a directory inside the tree. The first attempt follows no symlink, so that the path is
// literal. If there is one, the second attempt follows it, with the tree as its "/", and measures the result's depth:
// symlinks must not make a tree deeper than its limits.
func (t *Tree) open(path string) (parent, error) {
	fd, err := lookUp(t.root, path, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err == nil {
		return identify(path, fd)
	}
	if err == unix.ELOOP {
		fd, err = lookUp(t.root, path, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
	}
	if err == unix.ENOSYS {
		err := cove.Errorf(cove.Unsupported, "this kernel has no openat2, which keeps images inside their directory")
		return parent{}, err.WithHint("use Linux 5.6 or later, and no filter that hides the call")
	}
	if err != nil {
		return parent{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := measure(t.root, fd, t.limits); err != nil {
		unix.Close(fd)
		return parent{}, err
	}
	return identify(path, fd)
}

// lookUp opens a directory by a scoped lookup, which it repeats when a concurrent rename made it uncertain.
func lookUp(root *os.File, path string, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_XDEV}
	for range 128 {
		fd, err := unix.Openat2(int(root.Fd()), path, how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// measure refuses a directory deeper in the tree than an entry's own name could be.
func measure(root *os.File, fd int, l Limits) error {
	where, err := os.Readlink(procSelf(fd))
	if err != nil {
		return fmt.Errorf("find where a link led: %w", err)
	}
	top, err := os.Readlink(procSelf(int(root.Fd())))
	if err != nil {
		return fmt.Errorf("find the tree's own path: %w", err)
	}
	inside, ok := strings.CutPrefix(where, top)
	if !ok {
		return cove.Errorf(cove.Internal, "a path of the image left its tree")
	}
	if len(inside) > l.NameLength || strings.Count(inside, "/") > l.Depth {
		return cove.Errorf(cove.TooLarge, "links of the image lead deeper than %d directories", l.Depth)
	}
	return nil
}

func identify(path string, fd int) (parent, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return parent{}, err
	}
	return parent{path: path, fd: fd, ino: st.Ino}, nil
}
