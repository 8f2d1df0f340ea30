//go:build linux

package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/filelock"
)

// A base is a directory below which images are mounted. While there are any, it is a shared mount of itself, so that a
// copy of a mount namespace can do without all of them by ending one mount.

// hold makes the image's base a mount, and keeps others from ending that until the file is closed. Without a base, and
// where it cannot be one, is is false: an earlier version has mounted images below, or it is another file system's.
func (i Image) hold(ctx context.Context) (held *os.File, is bool, err error) {
	if i.Base == "" {
		return nil, false, nil
	}
	for range 2 {
		if held, err = lock(ctx, i.Base, filelock.Shared); err != nil {
			return nil, false, failed("lock", i.Base, err)
		}
		if at, err := point(i.Base); err != nil || at == shared {
			// A process that was killed may have left it unshared.
			return held, err == nil && unix.Mount("", i.Base, "", unix.MS_SHARED, "") == nil, nil
		}
		held.Close()
		if err := i.makeBase(ctx); err != nil {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// makeBase makes the base a mount where it can be one.
func (i Image) makeBase(ctx context.Context) error {
	held, err := lock(ctx, i.Base, filelock.Exclusive)
	if err != nil {
		return failed("lock", i.Base, err)
	}
	defer held.Close()
	at, err := mountOf(i.Base)
	if err != nil {
		return failed("look at", i.Base, err)
	}
	above, err := mountOf(filepath.Dir(i.Base))
	if err != nil {
		return failed("look above", i.Base, err)
	}
	if at.is || at.device != above.device {
		return nil
	}
	if some, err := mountedBelow(i.Base); err != nil || some {
		return err
	}
	// A bind mount of a shared mount would have what is mounted on it appear there, too.
	tree, err := unix.OpenTree(unix.AT_FDCWD, i.Base, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return failed("bind", i.Base, err)
	}
	defer unix.Close(tree)
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}) // 5.12
	if err == nil {
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, i.Base, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return failed("bind", i.Base, err)
	}
	return nil
}

// basePatience is how long a base may be in use by others before it stays as it is.
const basePatience = 5 * time.Second

// DropBase ends the mount of a base below which nothing is mounted.
func DropBase(base string) error {
	if at, err := point(base); err != nil || at != shared {
		return unlessMissing(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), basePatience)
	defer cancel()
	held, err := lock(ctx, base, filelock.Exclusive)
	if ctx.Err() != nil {
		return nil // its user drops it
	}
	if err != nil {
		return failed("lock", base, err)
	}
	defer held.Close()
	at, err := point(base)
	if err != nil || at != shared {
		return unlessMissing(err)
	}
	if some, err := mountedBelow(base); err != nil || some {
		return err
	}
	if err := unix.Unmount(base, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil { // files on it may be open
		return failed("unmount", base, err)
	}
	return nil
}

func unlessMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// mountedBelow reports whether something is mounted below a directory.
func mountedBelow(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(real)
	return strings.Contains(string(table), " "+escaped+"/"), err
}
