package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

const inMounts = unix.CLONE_NEWUSER | unix.CLONE_NEWNS

const (
	overlayFix = "load the module (sudo modprobe overlay), or use a kernel of at least 5.11 built with " +
		"CONFIG_OVERLAY_FS;\nthe host's own toolchain (--image host) works without"
	tmpfsFix = "this kernel's tmpfs has no limits: use one built with CONFIG_TMPFS and CONFIG_SHMEM"
)

// succeeds returns a check that fails if a trial does. found is reported otherwise, before what the trial reports.
func succeeds(name string, namespaces uintptr, found, fix string) func(context.Context, *host) outcome {
	return func(ctx context.Context, h *host) outcome {
		reported, err := h.try(ctx, trial{name: name, namespaces: namespaces})
		if err != nil {
			return fail(err.Error(), fix)
		}
		return ok(found + reported)
	}
}

// checkOverlayDirectories: images work without, but some programs in them do not.
func checkOverlayDirectories(ctx context.Context, h *host) outcome {
	if _, err := h.try(ctx, trial{name: "overlay-directories", namespaces: inMounts}); err != nil {
		return warn("directories that an image came with cannot be removed: "+err.Error(),
			"use Linux 6.6 or later, whose tmpfs keeps extended attributes of users; until then programs can change and "+
				"remove an\n"+
				"image's files, add to its directories, and do anything below /work, /tmp and the home; --image host is not "+
				"concerned")
	}
	return ok("one was removed and made anew")
}

// checkIDMap maps the owners of a mount on the state's file system, as images and workspaces are attached.
func checkIDMap(ctx context.Context, h *host) outcome {
	if !isRoot() {
		return info("not used without root: the code has your own id")
	}
	dir := existing(h.options.Home)
	userns, err := h.userNamespace(ctx)
	if err != nil {
		return unknown("a user namespace to map into", err)
	}
	defer userns.Close()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fail("open_tree "+dir+": "+err.Error(), "needs Linux 5.12 or later, and CAP_SYS_ADMIN")
	}
	tree := os.NewFile(uintptr(fd), dir)
	defer tree.Close()
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())})
	if err != nil {
		return fail(fmt.Sprintf("the file system of %s has none: %v", dir, err),
			"set COVE_HOME to a directory on ext4, xfs, btrfs or tmpfs")
	}
	if _, err := h.try(ctx, trial{name: "overlay-idmapped", namespaces: inMounts, tree: tree}); err != nil {
		return warn("on the file system of "+dir+", but not below an overlay: "+err.Error(),
			"images need Linux 5.19 or later when Cove runs as root; --image host and mounts do not")
	}
	return ok("on the file system of " + dir + ", and below an overlay")
}

// userNamespace returns a user namespace with a range of ids; its process has ended.
func (h *host) userNamespace(ctx context.Context) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{HostID: 0x70000000, Size: 65536}}
	pid, end, err := h.waiting(ctx, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL, UidMappings: ids, GidMappings: ids,
	})
	if err != nil {
		return nil, err
	}
	defer end()
	return os.Open("/proc/" + pid + "/ns/user")
}

// existing returns the nearest existing parent of a path.
func existing(path string) string {
	for ; path != "" && path != "/" && path != "."; path = filepath.Dir(path) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "/"
}

const enoughSpace = 2 << 30 // bytes, for images and the database

// checkHome writes into Cove's state directory and checks its free space.
func checkHome(_ context.Context, h *host) outcome {
	if h.options.Home == "" {
		return info("no state directory is configured")
	}
	dir := existing(h.options.Home)
	f, err := os.CreateTemp(dir, disk.Trial+"*")
	if err == nil {
		err = os.Remove(f.Name()) // first, so that hardly anything can be left
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another process has swept it
		}
		_, werr := f.Write(make([]byte, 4096))
		err = errors.Join(err, werr, f.Close())
	}
	if err != nil {
		return fail("cannot write: "+err.Error(), "set COVE_HOME to a directory that you may write")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return unknown(dir, err)
	}
	free := st.Bavail * uint64(st.Bsize)
	found := fmt.Sprintf("%s free in %s", size(free), h.options.Home)
	switch {
	case free < enoughSpace:
		return warn(found,
			"free some space, or set COVE_HOME to a larger file system; \"cove image prune\" removes unused images")
	case st.Files > 0 && st.Ffree < 10_000:
		return warn(fmt.Sprintf("%d inodes free in %s", st.Ffree, h.options.Home),
			"remove some files, or set COVE_HOME to another file system")
	}
	return ok(found)
}

// checkWorkspaces makes a disk like those of long-lived sandboxes in Cove's state directory, and mounts it.
func checkWorkspaces(ctx context.Context, h *host) outcome {
	if h.options.Home == "" {
		return info("no state directory is configured")
	}
	err := disk.Try(ctx, existing(h.options.Home))
	if err == nil {
		return ok("the kernel holds them to their limit, on disks of their own")
	}
	return warn("watched by Cove, for the machine's owner alone: "+err.Error(),
		cmp.Or(cove.ErrorHint(err), "run Cove as root"))
}

func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
