package adversary

import "golang.org/x/sys/unix"

// freeBytes is what an unprivileged writer can still put on a path's file system.
func freeBytes(path string) (int64, error) {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	return int64(fs.Bavail) * fs.Bsize, err
}
