package layer

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Flatten makes a tree with the files of another, of which all are root's. Those that are already are links, the others
// copies. to must not exist.
func Flatten(ctx context.Context, from, to string) error {
	err := os.Mkdir(to, 0o700)
	if err == nil {
		err = flattening{map[[2]uint64]string{}}.directory(ctx, from, to)
	}
	return failure(err, "copy a root filesystem")
}

type flattening struct {
	first map[[2]uint64]string // of inodes with several names, the first copy
}

func (f flattening) directory(ctx context.Context, from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.entry(ctx, filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	st.Uid, st.Gid = 0, 0
	return describe(to, st)
}

func (f flattening) entry(ctx context.Context, from, to string) error {
	var st unix.Stat_t
	err := unix.Lstat(from, &st)
	if err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	id := [2]uint64{st.Dev, st.Ino}
	first, again := f.first[id]
	switch {
	case kind(st) == unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = f.directory(ctx, from, to)
		}
		return err
	case st.Uid == 0 && st.Gid == 0:
		return os.Link(from, to)
	case again:
		return os.Link(first, to)
	case kind(st) == unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case kind(st) == unix.S_IFIFO:
		err = unix.Mkfifo(to, 0o600)
	default:
		err = copyFile(ctx, from, to)
	}
	if err != nil {
		return err
	}
	if st.Nlink > 1 {
		f.first[id] = to
	}
	st.Uid, st.Gid = 0, 0
	return resemble(from, to, st)
}
