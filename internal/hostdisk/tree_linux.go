package hostdisk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// segment is how many levels of a tree are reached from one open directory: a sandbox could make it deep to make others
// wait.
const segment = 64

// Tree returns the bytes and the files of a tree, however deep, counting each file once. It fails for a tree of which
// it cannot see all: one who fills a disk must not hide that by the mode of a directory.
func Tree(ctx context.Context, dir string) (bytes, files int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, 0, err
	}
	t := tree{seen: map[inode]bool{}}
	err = t.add(ctx, root)
	return t.bytes, t.files, err
}

type inode struct{ dev, ino uint64 }

type tree struct {
	bytes, files int64
	seen         map[inode]bool // files with several names
}

// add counts what is below a directory, and the directory, and closes it.
func (t *tree) add(ctx context.Context, top *os.Root) error {
	defer top.Close()
	return fs.WalkDir(top.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case path != "." && gone(err):
			return nil
		case err != nil:
			return err
		}
		if d.IsDir() && strings.Count(path, "/") >= segment {
			below, err := top.OpenRoot(path)
			if err == nil {
				err = t.add(ctx, below)
			}
			if err == nil || gone(err) {
				return fs.SkipDir
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			if gone(err) {
				return nil
			}
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			id := inode{st.Dev, st.Ino}
			if st.Nlink == 1 || !t.seen[id] {
				t.bytes, t.files = t.bytes+st.Blocks*512, t.files+1
			}
			if st.Nlink > 1 && !d.IsDir() {
				t.seen[id] = true
			}
		}
		return nil
	})
}

// gone reports whether an error says that a file was removed or replaced meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }
