package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// layersName is the directory of a store for the layers that builds keep. While one runs, it holds a lock beside it.
const layersName = "build"

// pruneLayers removes layers of builds, unless a build runs. Their files remain where images have them.
func pruneLayers(kept string) (freed int64, err error) {
	if _, err := os.Lstat(kept); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	lock, err := tryLock(kept+lockSuffix, unix.LOCK_EX)
	if err == errHeld {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	entries, err := os.ReadDir(kept)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		dir := filepath.Join(kept, e.Name())
		bytes := diskUsage(dir)
		if e := unpack.RemoveAll(dir); e != nil {
			err = errors.Join(err, e)
			continue
		}
		freed += bytes
	}
	return freed, err
}
