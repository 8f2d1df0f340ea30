package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

func (t *Tree) apply(tr *tar.Reader, h *tar.Header, kind Kind) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := t.limits.clean(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return t.applyRoot(h)
	}
	dir, base := split(name)
	if kind == Layer {
		if done, err := t.special(name, dir, base); done || err != nil {
			return err
		}
	}
	up, err := t.enter(dir, true)
	if err != nil {
		return failure(err, "enter the directory of", name)
	}
	if err := t.create(tr, h, up, base); err != nil {
		return failure(err, "unpack", name)
	}
	return nil
}

func (t *Tree) applyRoot(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return refuse(h.Name, "the root must be a directory")
	}
	root, err := t.enter(".", false)
	if err != nil {
		return failure(err, "enter", ".")
	}
	if err := t.chown(root.fd, "", h, unix.AT_EMPTY_PATH); err != nil {
		return failure(err, "give away", ".")
	}
	t.dirs[root.ino] = t.meta(h)
	return nil
}

// create makes one entry by its last component, in an open directory.
func (t *Tree) create(tr *tar.Reader, h *tar.Header, up parent, base string) error {
	t.created[t.place(up.ino, base)] = struct{}{}
	switch h.Typeflag {
	case tar.TypeDir:
		return t.directory(h, up, base)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return t.regular(tr, h, up, base)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4095 || strings.IndexByte(h.Linkname, 0) >= 0 {
			return refuse(h.Name, "not a target that a symbolic link can have")
		}
		return t.node(h, up, base, func() error { return unix.Symlinkat(h.Linkname, up.fd, base) })
	case tar.TypeLink:
		return t.hardlink(h, up, base)
	case tar.TypeFifo:
		return t.node(h, up, base, func() error { return unix.Mknodat(up.fd, base, unix.S_IFIFO|0o600, 0) })
	default: // devices and unknown types
		t.stats.Skipped++
		return t.clearWay(up, base)
	}
}

func (t *Tree) directory(h *tar.Header, up parent, base string) error {
	err := unix.Mkdirat(up.fd, base, 0o700)
	if err == unix.EEXIST {
		err = t.keepDirectory(up, base)
	}
	if err != nil {
		return err
	}
	if err := t.chown(up.fd, base, h, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return t.describe(up, base, t.meta(h))
}

// keepDirectory keeps an existing directory and replaces anything else.
func (t *Tree) keepDirectory(up parent, base string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(up.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err := t.clearWay(up, base); err != nil {
		return err
	}
	return unix.Mkdirat(up.fd, base, 0o700)
}

func (t *Tree) regular(tr *tar.Reader, h *tar.Header, up parent, base string) error {
	if t.written += h.Size; t.written > t.limits.Bytes {
		return t.limits.tooManyBytes()
	}
	fd := -1
	err := t.exclusively(up, base, func() (err error) {
		fd, err = unix.Openat(up.fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := t.copy(fd, tr); err != nil {
		return err
	}
	if err := t.chown(fd, "", h, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, permissions(h)); err != nil {
		return err
	}
	if t.owners {
		if err := setCapabilities(fd, h); err != nil {
			return err
		}
	}
	return t.setTime(up.fd, base, h)
}

// copy writes a file's content. A failed read is the archive's fault, a failed write the disk's.
func (t *Tree) copy(fd int, r io.Reader) error {
	for {
		n, err := r.Read(t.buf)
		for p := t.buf[:n]; len(p) > 0; {
			w, err := unix.Write(fd, p)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			p = p[w:]
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return malformed(err)
		}
	}
}

// hardlink adds a name to an entry of the tree; like every other path, an absolute target or one with ".." is refused.
func (t *Tree) hardlink(h *tar.Header, up parent, base string) error {
	target, err := t.limits.clean(h.Linkname)
	if err != nil {
		return fmt.Errorf("hard link %.200q: %w", h.Name, err)
	}
	if target == "." {
		return refuse(h.Name, "a hard link to a directory")
	}
	dir, targetBase := split(target)
	from, err := t.open(dir)
	if err != nil {
		return missingTarget(h, err)
	}
	defer unix.Close(from.fd)
	var st, old unix.Stat_t
	if err := unix.Fstatat(from.fd, targetBase, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return missingTarget(h, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return refuse(h.Name, "a hard link to a directory")
	}
	err = unix.Fstatat(up.fd, base, &old, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && old.Ino == st.Ino && old.Dev == st.Dev {
		return nil
	}
	return t.exclusively(up, base, func() error { return unix.Linkat(from.fd, targetBase, up.fd, base, 0) })
}

func missingTarget(h *tar.Header, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return refuse(h.Name, fmt.Sprintf("the target %.200q of its hard link is not in the image", h.Linkname))
	}
	return err
}

// node makes an entry without content, by a call.
func (t *Tree) node(h *tar.Header, up parent, base string, make func() error) error {
	if err := t.exclusively(up, base, make); err != nil {
		return err
	}
	if err := t.chown(up.fd, base, h, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		// Fchmodat follows symlinks; this name was just made, in a directory that no other process can reach.
		if err := unix.Fchmodat(up.fd, base, permissions(h), 0); err != nil {
			return err
		}
	}
	return t.setTime(up.fd, base, h)
}

// exclusively runs a call that fails when the name exists, and repeats it after removing the name: the last entry of a
// name wins, and never writes into an existing file, which may have other names.
func (t *Tree) exclusively(up parent, base string, make func() error) error {
	err := make()
	if err != unix.EEXIST {
		return err
	}
	if err := t.clearWay(up, base); err != nil {
		return err
	}
	return make()
}

func (t *Tree) chown(fd int, base string, h *tar.Header, flags int) error {
	if !t.owners {
		return nil
	}
	return unix.Fchownat(fd, base, ownerID(h.Uid), ownerID(h.Gid), flags)
}

func (t *Tree) setTime(fd int, base string, h *tar.Header) error {
	ts := unix.NsecToTimespec(sane(h.ModTime, t.now).UnixNano())
	return unix.UtimesNanoAt(fd, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
