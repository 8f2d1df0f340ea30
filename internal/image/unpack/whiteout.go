package unpack

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// special handles the special names of a layer, and reports whether this was one.
func (t *Tree) special(name, dir, base string) (bool, error) {
	switch {
	case strings.HasPrefix(name, metaPrefix) && name != opaqueMarker:
		t.stats.Skipped++ // storage driver's metadata, at the root only
		return true, nil
	case strings.HasPrefix(base, whiteoutPrefix):
		return true, t.whiteout(dir, base)
	case strings.Contains("/"+dir, "/"+whiteoutPrefix):
		return true, refuse(name, "a whiteout is not a directory")
	}
	return false, nil
}

// whiteout hides the entries of lower layers at a name, or in a whole directory.
func (t *Tree) whiteout(dir, base string) error {
	name, opaque := strings.TrimPrefix(base, whiteoutPrefix), base == opaqueMarker
	switch {
	case strings.HasPrefix(base, metaPrefix) && !opaque:
		return nil
	case name == "", name == ".", name == "..":
		return refuse(base, "not a name that a whiteout can hide")
	}
	up, err := t.enter(dir, opaque) // an opaque directory exists, even if empty
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil // nothing to hide
	}
	if err != nil {
		return failure(err, "enter", dir)
	}
	if opaque {
		_, err = t.hideAll(up.fd, up.ino, false)
	} else {
		_, err = t.hide(up.fd, up.ino, name, false)
	}
	if err != nil {
		return failure(err, "hide", name)
	}
	return nil
}

// hide removes a name and all below, except, unless ownToo, entries of this layer, and reports whether any stay.
func (t *Tree) hide(dirfd int, dirIno uint64, base string, ownToo bool) (kept bool, err error) {
	_, own := t.created[t.place(dirIno, base)]
	own = own && !ownToo
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return false, nil
		}
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if own {
			return true, nil
		}
		return false, unix.Unlinkat(dirfd, base, 0)
	}
	fd, err := unix.Openat(dirfd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	kept, err = t.hideAll(fd, st.Ino, ownToo)
	unix.Close(fd)
	if err != nil || kept || own {
		return true, err
	}
	delete(t.dirs, st.Ino)
	return false, unix.Unlinkat(dirfd, base, unix.AT_REMOVEDIR)
}

func (t *Tree) hideAll(dirfd int, ino uint64, ownToo bool) (kept bool, err error) {
	names, err := list(dirfd)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		stays, err := t.hide(dirfd, ino, name, ownToo)
		if err != nil {
			return false, err
		}
		kept = kept || stays
	}
	return kept, nil
}

func (t *Tree) clearWay(up parent, base string) error {
	_, err := t.hide(up.fd, up.ino, base, true)
	return err
}

// list returns the names of a directory that was opened without read access.
func list(dirfd int) ([]string, error) {
	fd, err := unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), "directory")
	defer d.Close()
	return d.Readdirnames(-1)
}
