//go:build linux

package local

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
)

// OwnerOf returns the owner of an open file or directory.
func OwnerOf(place *os.File) (Owner, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(place.Fd()), &st)
	return Owner{UID: int(st.Uid), GID: int(st.Gid)}, err
}

// Ownership returns a user namespace for idmapped mounts: what belongs to one owner of the host belongs to a user of a
// sandbox, whose ids on the host are as. guest is the path of cove-guest, which holds the namespace open.
func Ownership(guest string, env []string, of Owner, as Owner) (*os.File, error) {
	program, err := OpenProgram(guest)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return mounts.Ownership(program.File(), []string{"cove-guest", "--wait"}, env,
		mounts.Owner{UID: of.UID, GID: of.GID}, mounts.Owner{UID: as.UID, GID: as.GID})
}

// Unmappable is the error of a mount whose owner cannot be mapped.
func Unmappable(place string, err error) error {
	return cove.Errorf(cove.Unsupported, "%s cannot be attached with its owner: %w", place, err).
		WithHint("its file system needs idmapped mounts: ext4, xfs, btrfs, tmpfs and others since Linux 5.12")
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Descriptors returns the descriptors of files, which stay open.
func Descriptors(files []*os.File) []int {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds
}
