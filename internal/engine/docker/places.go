package docker

import (
	"fmt"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// The native engine has one file system for everything writable. A container engine mounts each place by itself, so the
// limits of bytes and inodes are divided, in 32nds: most for where code and its files are and for the home directory
// (homeShare), where package managers and compilers keep their caches.
var shares = map[string]int64{cove.WorkDir: 12, "/tmp": 6, "/var/tmp": 2, "/run": 1, "/dev/shm": 1}

const (
	whole     = 32
	homeShare = 10
	page      = 4096 // tmpfs counts in pages
)

// minDisk and minInodes are the least that a division needs to leave something for every place.
const (
	minDisk   = whole * page
	minInodes = whole * 4
)

type place struct {
	rootfs.Writable
	size, inodes int64
}

// divide gives every writable place its share; together they have the limits, rounded down.
func divide(disk, inodes int64, u cove.User) ([]place, error) {
	if disk < minDisk || inodes < minInodes {
		return nil, cove.Errorf(cove.InvalidArgument,
			"a disk of %d bytes and %d inodes is too small to be divided among the writable places", disk, inodes).
			WithHint("ask for at least %d bytes and %d inodes", minDisk, minInodes)
	}
	var places []place
	for _, w := range rootfs.Writables(u) {
		share := shares[w.Name]
		if w.Name == u.Home {
			share = homeShare
		}
		if share == 0 {
			return nil, cove.Errorf(cove.Internal, "the docker engine gives no share of the disk to %s", w.Name)
		}
		places = append(places, place{Writable: w, size: disk * share / whole / page * page, inodes: inodes * share / whole})
	}
	return places, nil
}

// mountOptions are the place's, for the user with the given id. The user owns every one of them: runc gives a place the
// mode of the image's directory, if it has one there, and that may be any.
func (p place) mountOptions(uid int, noExec bool) string {
	exec := "exec"
	if noExec && p.Temp {
		exec = "noexec"
	}
	return fmt.Sprintf("rw,%s,nosuid,nodev,size=%d,nr_inodes=%d,mode=%o,uid=%d,gid=%[5]d", exec, p.size, p.inodes, p.Mode,
		uid)
}
