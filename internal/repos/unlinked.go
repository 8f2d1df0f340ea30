package repos

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// unlinked returns the bytes and files on the file system of a checkout that processes of its sandbox hold open, and
// that no directory has any more. A process is the sandbox's if the checkout is its workspace. What only a mapping or a
// message between sockets holds is not found, nor are processes that this account may not look into.
func unlinked(ctx context.Context, proc, checkout string) (bytes, files int64, err error) {
	var of unix.Stat_t
	if err := unix.Lstat(checkout, &of); err != nil {
		return 0, 0, err
	}
	pids, err := os.ReadDir(proc)
	if err != nil {
		return 0, 0, err
	}
	seen := map[uint64]bool{}
	for _, e := range pids {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		process := filepath.Join(proc, e.Name())
		var its unix.Stat_t
		// Not followed, so that it leads to nothing outside.
		if err := unix.Lstat(process+"/root"+cove.Workspace, &its); err != nil || its.Dev != of.Dev || its.Ino != of.Ino {
			continue
		}
		// Each thread may have descriptors of its own.
		tasks, _ := os.ReadDir(filepath.Join(process, "task"))
		for _, task := range tasks {
			dir := filepath.Join(process, "task", task.Name(), "fd")
			open, _ := os.ReadDir(dir) // it may end at any time
			for _, fd := range open {
				var st unix.Stat_t
				if unix.Stat(filepath.Join(dir, fd.Name()), &st) != nil || st.Dev != of.Dev ||
					st.Nlink > 0 || seen[st.Ino] {
					continue
				}
				seen[st.Ino] = true
				bytes, files = bytes+st.Blocks*512, files+1
			}
		}
	}
	return bytes, files, nil
}
