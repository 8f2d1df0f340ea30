package layer

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Most bounds the bytes and files of a layer.
type Most struct{ Bytes, Files int64 }

// Builds leave so many bytes and inodes of the disk, and of these no more than a twentieth of all.
const leastFree, leastInodes = 512 << 20, 50_000

// Left returns how much builds may write to the disk of a directory.
func Left(dir string) Most {
	left := Most{math.MaxInt64, math.MaxInt64}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil {
		left.Bytes = int64(st.Bavail)*st.Bsize - leastFree
		if st.Files > 0 { // else the file system makes inodes as it needs them
			left.Files = int64(st.Ffree) - min(leastInodes, int64(st.Files)/20)
		}
	}
	return left
}

// Spare refuses that a build writes more where the disk of a directory is nearly full. Errors: StorageFull.
func Spare(dir string) error {
	left := Left(dir)
	if left.Bytes >= 0 && left.Files >= 0 {
		return nil
	}
	what := fmt.Sprintf("less than %d MiB", leastFree>>20)
	if left.Bytes >= 0 {
		what = "hardly an inode"
	}
	return cove.Errorf(cove.StorageFull, "the disk of the images has %s left", what).
		WithHint("free some space, or run \"cove image prune\"")
}
