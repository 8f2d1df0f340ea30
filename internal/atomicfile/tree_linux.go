package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncAll syncs the file system of a directory: one call, where syncing each file of a tree would take minutes. Without
// it, a power cut could leave empty files in a tree that was renamed into place.
func SyncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
