package enginetest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TmpfsXattrs reports whether this kernel's tmpfs keeps extended attributes of
// users (Linux 6.6), on which an overlay in a user namespace takes its notes.
func TmpfsXattrs(t testing.TB) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skipf("needs a tmpfs at /dev/shm to see what it can: %v", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "cove-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	err = unix.Setxattr(dir, "user.cove", []byte("x"), 0)
	if err != nil && err != unix.EOPNOTSUPP {
		t.Fatal(err)
	}
	return err == nil
}
