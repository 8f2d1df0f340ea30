// Package atomicfile replaces small files atomically: after a crash or on a full disk, readers see the old content or
// the new one, never a part of either.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write writes data to a temporary file in path's directory, syncs it, renames it to path, and syncs the directory. On
// error the old file is unchanged and no temporary file is left. Only a crash can leave one, named "."+base+".*".
func Write(path string, data []byte, perm fs.FileMode) error {
	if err := replace(path, data, perm, (*os.File).Sync); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Replace is Write without syncing: after a crash of the machine the file may be missing or empty.
func Replace(path string, data []byte, perm fs.FileMode) error {
	return replace(path, data, perm, func(*os.File) error { return nil })
}

func replace(path string, data []byte, perm fs.FileMode, sync func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(tmp.Close()), ignoreMissing(os.Remove(tmp.Name())))
		}
	}()
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := tmp.Chmod(perm); err != nil {
		return err
	}
	if err := sync(tmp); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
