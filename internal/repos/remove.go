package repos

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/cove-sandbox/cove/internal/engine/local"
)

// removeAll removes a hostile tree: with unreadable directories, and deeper than the maximum length of a path or the
// number of open files.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	for round := 0; err != nil && round < 1000; round++ {
		if err = hoist(dir); err != nil {
			err = local.FindIDs().RemoveAll(dir)
			break
		}
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return storageFull("remove a workspace", err)
	}
	return nil
}

// hoist makes the directories of a tree accessible to its owner, and moves deep ones to the top.
func hoist(top string) error {
	const deep = 64
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d == nil || !d.IsDir() {
			return nil
		}
		if e := root.Chmod(path, 0o700); e != nil && !errors.Is(e, fs.ErrNotExist) {
			return e
		}
		if strings.Count(path, "/") < deep {
			return nil
		}
		if e := root.Rename(path, ".deep-"+rand.Text()); e != nil {
			return e
		}
		return fs.SkipDir
	})
}
