package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncAll writes out the file system that a directory is on: one call, where
// syncing each file of a tree would take minutes. Without it, a power cut could
// leave a tree that was renamed into place with empty files.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
