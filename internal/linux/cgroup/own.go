//go:build linux

package cgroup

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OwnMemoryLimit returns the smallest limit of memory, in bytes, of this process's group and those above it; 0 without
// one.
func OwnMemoryLimit() (int64, error) {
	own, err := groupsOf("self")
	if err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(Mount, &st); err != nil {
		return 0, err
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return smallest(Mount, own[""], "memory.max"), nil
	}
	return smallest(filepath.Join(Mount, Memory), own[Memory], "memory.limit_in_bytes"), nil
}

// noLimit is beyond every machine: version 1 says "none" as the largest number of pages.
const noLimit = 1 << 60

// smallest returns the smallest number in the files of a name in a directory below top and in those above it, up to
// top. A file that is missing or holds no number is no limit.
func smallest(top, below, name string) int64 {
	least := int64(noLimit)
	for dir := filepath.Join(top, below); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
		if n, err := number(dir, name); err == nil && n > 0 {
			least = min(least, n)
		}
		if dir == top {
			break
		}
	}
	if least == noLimit {
		return 0
	}
	return least
}
