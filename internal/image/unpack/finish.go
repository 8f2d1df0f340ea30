package unpack

import (
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Finish gives directories their modes and times, counts the tree, and checks every name again: a device or a
// set-user-id bit at this point is a defect of this package, and is refused.
func (t *Tree) Finish() (Stats, error) {
	t.forget()
	f := finisher{tree: t, linked: map[uint64]struct{}{}}
	fd, err := unix.FcntlInt(t.root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Stats{}, failure(err, "open", ".")
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Stats{}, failure(err, "look at", ".")
	}
	if _, ok := t.dirs[st.Ino]; !ok {
		t.dirs[st.Ino] = dirMeta{mode: 0o755, mtime: t.now.UnixNano()}
	}
	if err := f.directory(fd, st.Ino); err != nil {
		return Stats{}, failure(err, "finish", ".")
	}
	f.stats.Skipped = t.skipped
	return f.stats, nil
}

type finisher struct {
	tree   *Tree
	stats  Stats
	linked map[uint64]struct{} // counted inodes with several names
}

// directory finishes its content first: the directory may be unreadable afterwards.
func (f *finisher) directory(fd int, ino uint64) error {
	f.stats.Dirs++
	names, err := list(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := f.name(fd, name); err != nil {
			return err
		}
	}
	meta, ok := f.tree.dirs[ino]
	if !ok {
		return cove.Errorf(cove.Internal, "a directory of the image was not made by its unpacking")
	}
	if err := unix.Fchmod(fd, meta.mode); err != nil {
		return err
	}
	ts := unix.NsecToTimespec(meta.mtime)
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{ts, ts}, unix.AT_EMPTY_PATH)
}

func (f *finisher) name(dirfd int, name string) error {
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
		return f.directory(fd, st.Ino)
	case kind != unix.S_IFREG && kind != unix.S_IFLNK && kind != unix.S_IFIFO,
		kind != unix.S_IFLNK && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return cove.Errorf(cove.Internal, "%.200q was unpacked with mode %o", name, st.Mode)
	}
	f.stats.Files++
	if st.Nlink > 1 {
		if _, seen := f.linked[st.Ino]; seen {
			return nil
		}
		f.linked[st.Ino] = struct{}{}
	}
	f.stats.Bytes += st.Size
	return nil
}

// RemoveAll removes a directory of this package's making, whatever the modes of its directories. A missing one is no
// error.
func RemoveAll(dir string) error { return removeAt(unix.AT_FDCWD, dir) }

// removeAt removes a name and everything below, without following symlinks.
func removeAt(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM { // POSIX: EPERM for a directory
		return err
	}
	fd, err := openToEmpty(dirfd, name)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	err = removeIn(fd)
	unix.Close(fd)
	if err != nil {
		return err
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != unix.ENOENT {
		return err
	}
	return nil
}

func removeIn(fd int) error {
	names, err := list(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAt(fd, name); err != nil {
			return err
		}
	}
	return nil
}

// openToEmpty opens a directory and makes it writable: without root, a directory of mode 0555 cannot be emptied, nor
// one of mode 0 be listed.
func openToEmpty(dirfd int, name string) (int, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|flags, 0)
	if err == unix.EACCES {
		if err = openUp(dirfd, name); err == nil {
			fd, err = unix.Openat(dirfd, name, unix.O_RDONLY|flags, 0)
		}
	}
	if err != nil {
		return -1, err
	}
	if unix.Geteuid() != 0 {
		_ = unix.Fchmod(fd, 0o700) // if it belongs to another, unlinking fails
	}
	return fd, nil
}

// openUp gives the owner access to a directory that cannot be opened.
func openUp(dirfd int, name string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(procSelf(fd), 0o700) // before 6.6, fchmod refuses O_PATH descriptors
}
