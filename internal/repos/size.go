package repos

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// deepest bounds the measured depth of a tree: a sandbox could make it deep to make others wait.
const deepest = 256

// sizeOf returns the bytes and the files of a tree, counting each file once.
func sizeOf(ctx context.Context, dir string) (bytes, files int64, err error) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d == nil:
			return err
		}
		fi, infoErr := d.Info()
		if infoErr != nil {
			return nil // removed meanwhile
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			id := inode{st.Dev, st.Ino}
			if st.Nlink == 1 || !seen[id] {
				bytes, files = bytes+st.Blocks*512, files+1
			}
			if st.Nlink > 1 && !d.IsDir() {
				seen[id] = true
			}
		}
		if d.IsDir() && (err != nil || strings.Count(path, "/") >= deepest) {
			return fs.SkipDir // unreadable or too deep: not counted
		}
		return nil
	})
	return bytes, files, err
}
