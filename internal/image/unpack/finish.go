package unpack

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Finish gives directories their modes and times, counts the tree, and checks every name again: a device at this point
// is a defect of this package, and is refused.
func (t *Tree) Finish() (Stats, error) {
	t.forget()
	fd := int(t.root.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Stats{}, failure(err, "look at", ".")
	}
	if _, ok := t.dirs[st.Ino]; !ok {
		t.dirs[st.Ino] = undescribed(t.now)
	}
	if err := t.finish(fd, st.Ino); err != nil {
		return Stats{}, failure(err, "finish", ".")
	}
	return t.stats, nil
}

// finish finishes what is in a directory first: the directory may be unreadable afterwards.
func (t *Tree) finish(fd int, ino uint64) error {
	t.stats.Dirs++
	names, err := list(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.finishName(fd, name); err != nil {
			return err
		}
	}
	meta, ok := t.dirs[ino]
	if !ok {
		return cove.Errorf(cove.Internal, "a directory of the image was not made by its unpacking")
	}
	if err := unix.Fchmod(fd, meta.mode); err != nil {
		return err
	}
	ts := unix.NsecToTimespec(meta.mtime)
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{ts, ts}, unix.AT_EMPTY_PATH)
}

func (t *Tree) finishName(dirfd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return t.finish(fd, st.Ino)
	case kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFIFO:
		return cove.Errorf(cove.Internal, "%.200q was unpacked with mode %o", name, st.Mode)
	}
	t.stats.Files++
	if st.Nlink > 1 {
		if t.linked[st.Ino] {
			return nil
		}
		t.linked[st.Ino] = true
	}
	t.stats.Bytes += st.Size
	return nil
}

// RemoveAll removes a directory of this package's making, whatever its modes. A missing one is no error.
func RemoveAll(dir string) error {
	if os.Geteuid() != 0 {
		_ = os.Chmod(dir, 0o700)
		if root, err := os.OpenRoot(dir); err == nil {
			openUp(root)
			root.Close()
		}
	}
	return os.RemoveAll(dir)
}

// openUp gives the owner access to every directory below: without root, a directory of mode 0555 cannot be emptied, nor
// one of mode 0 be listed. What fails here fails to be removed, too.
func openUp(root *os.Root) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	entries, _ := dir.ReadDir(-1)
	dir.Close()
	for _, e := range entries {
		if !e.IsDir() || root.Chmod(e.Name(), 0o700) != nil {
			continue
		}
		if below, err := root.OpenRoot(e.Name()); err == nil {
			openUp(below)
			below.Close()
		}
	}
}
