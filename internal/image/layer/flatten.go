package layer

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Flatten makes a tree with the files of a stack, of which all are root's. Those that are already are links, the others
// copies. to must not exist.
func Flatten(ctx context.Context, from rootfs.Stack, to string) error {
	v, err := from.Open()
	if err != nil {
		return failure(err, "open a root filesystem")
	}
	defer v.Close()
	if err = os.Mkdir(to, 0o700); err == nil {
		err = flattening{v, map[[2]uint64]string{}}.directory(ctx, ".", to)
	}
	return failure(err, "copy a root filesystem")
}

type flattening struct {
	view  *rootfs.View
	first map[[2]uint64]string // of inodes with several names, the first copy
}

func (f flattening) directory(ctx context.Context, name, to string) error {
	names, err := f.view.Names(name, 0)
	if err != nil {
		return err
	}
	for _, entry := range names {
		if err := f.entry(ctx, path.Join(name, entry), filepath.Join(to, entry)); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(f.view.Parts(name)[0], &st); err != nil {
		return err
	}
	st.Uid, st.Gid = 0, 0
	return describe(to, st)
}

func (f flattening) entry(ctx context.Context, name, to string) error {
	dir, err := f.view.Part(name)
	if err != nil {
		return err
	}
	from := filepath.Join(dir, name)
	var st unix.Stat_t
	err = unix.Lstat(from, &st)
	if err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	id := [2]uint64{st.Dev, st.Ino}
	first, again := f.first[id]
	switch {
	case kind(st) == unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = f.directory(ctx, name, to)
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
