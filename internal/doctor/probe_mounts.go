//go:build linux

package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// place returns a directory to mount on: it exists everywhere, and other processes do not see mounts in the child's own
// mount namespace.
func place() string { return os.TempDir() }

// ownTmpfs makes the mounts private and mounts a tmpfs on the place.
func ownTmpfs(data string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return step("make the mounts private", err)
	}
	return step("mount a tmpfs", unix.Mount("tmpfs", place(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data))
}

// probeCapability uses a capability in its namespaces: restricted user namespaces can be made but grant none.
func probeCapability([]string) (string, error) { return "", ownTmpfs("size=64k") }

// probeNested becomes another user and then makes namespaces as that user. Its arguments are the user's id and this
// program's command for a probe.
func probeNested(args []string) (string, error) {
	id, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id),
		syscall.Setresuid(id, id, id)); err != nil {
		return "", step(fmt.Sprintf("become uid %d", id), err)
	}
	// The change of ids gave /proc/self to root, but the id map is written there.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return "", step("become dumpable", err)
	}
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.SysProcAttr = attributes(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)
	return ask(cmd)
}

// probeProc mounts /proc as the first process of a pid namespace.
func probeProc([]string) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", step("make the mounts private", err)
	}
	if err := unix.Mount("proc", place(), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "", step("mount proc", err)
	}
	if self, err := os.Readlink(filepath.Join(place(), "self")); err != nil || self != "1" {
		return "", step("find itself as pid 1", fmt.Errorf("%q, %v", self, err))
	}
	return "", nil
}

// at returns a path in the tmpfs of ownTmpfs.
func at(name string) string { return filepath.Join(place(), name) }

// layers makes a tmpfs with the directories of an overlay, and others.
func layers(more ...string) error {
	if err := ownTmpfs("size=1m"); err != nil {
		return err
	}
	for _, dir := range append([]string{"lower", "upper", "work", "merged"}, more...) {
		if err := os.Mkdir(at(dir), 0o755); err != nil {
			return step("make "+dir, err)
		}
	}
	return nil
}

// mountOverlay mounts an overlay as for an image.
func mountOverlay() error {
	data := "userxattr,lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	return step("mount an overlay", unix.Mount("overlay", at("merged"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, data))
}

// ownOverlay makes an overlay over a lower directory with a file and a directory.
func ownOverlay() error {
	if err := layers("lower/dir"); err != nil {
		return err
	}
	for _, file := range []string{"lower/file", "lower/dir/file"} {
		if err := os.WriteFile(at(file), []byte("lower"), 0o644); err != nil {
			return step("write "+file, err)
		}
	}
	return mountOverlay()
}

// probeOverlay changes a file through an overlay; the lower one must be unchanged.
func probeOverlay([]string) (string, error) {
	if err := ownOverlay(); err != nil {
		return "", err
	}
	if err := os.WriteFile(at("merged/file"), []byte("upper"), 0o644); err != nil {
		return "", step("write through the overlay", err)
	}
	lower, err := os.ReadFile(at("lower/file"))
	if err != nil || string(lower) != "lower" {
		return "", step("keep the lower file", fmt.Errorf("it reads %q, %v", lower, err))
	}
	return "", step("remove through the overlay", os.Remove(at("merged/file")))
}

// probeOverlayDirectories removes a directory through an overlay and makes it again: both need an extended attribute on
// the overlay's own directory, which hides the lower one.
func probeOverlayDirectories([]string) (string, error) {
	if err := ownOverlay(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(at("merged/dir")); err != nil {
		return "", step("remove a directory", err)
	}
	if err := os.Mkdir(at("merged/dir"), 0o755); err != nil {
		return "", step("make it anew", err)
	}
	entries, err := os.ReadDir(at("merged/dir"))
	if err == nil && len(entries) != 0 {
		err = fmt.Errorf("it has %v", entries)
	}
	return "", step("find it empty", err)
}

// probeOverlayIDMapped mounts an overlay over a given idmapped mount, as for an image when root runs Cove.
func probeOverlayIDMapped([]string) (string, error) {
	if err := layers(); err != nil {
		return "", err
	}
	if err := unix.MoveMount(3, "", unix.AT_FDCWD, at("lower"), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", step("attach the mount", err)
	}
	return "", mountOverlay()
}

// probeTmpfsBytes writes more than a tmpfs permits.
func probeTmpfsBytes([]string) (string, error) {
	const size = 1 << 20
	if err := ownTmpfs("size=" + strconv.Itoa(size)); err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(place(), "file"))
	if err != nil {
		return "", step("make a file", err)
	}
	n, err := f.Write(make([]byte, 2*size))
	if !errors.Is(err, unix.ENOSPC) {
		return "", step("be stopped at 1 MiB", fmt.Errorf("wrote %d bytes, %v", n, err))
	}
	if n > size {
		return "", step("be stopped at 1 MiB", fmt.Errorf("stopped after %d bytes", n))
	}
	return fmt.Sprintf("stopped after %d of %d bytes", n, 2*size), nil
}

// probeTmpfsInodes makes more files than a tmpfs permits.
func probeTmpfsInodes([]string) (string, error) {
	const inodes = 16
	if err := ownTmpfs("size=1m,nr_inodes=" + strconv.Itoa(inodes)); err != nil {
		return "", err
	}
	for i := range 2 * inodes {
		f, err := os.Create(filepath.Join(place(), strconv.Itoa(i)))
		if errors.Is(err, unix.ENOSPC) {
			return fmt.Sprintf("stopped after %d of %d files", i, 2*inodes), nil
		}
		if err != nil {
			return "", step("make a file", err)
		}
		f.Close()
	}
	return "", step("be stopped at 16 inodes", fmt.Errorf("made %d files", 2*inodes))
}

// probeMountAPI makes a mount by descriptors, and copies one.
func probeMountAPI([]string) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", step("make the mounts private", err)
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", step("fsopen", err)
	}
	if err := unix.FsconfigSetString(fs, "size", "64k"); err != nil {
		return "", step("fsconfig", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", step("fsconfig create", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		return "", step("fsmount", err)
	}
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, place(), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", step("move_mount", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, place(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", step("open_tree", err)
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return "", step("mount_setattr", err)
	}
	return strings.Join([]string{"fsopen", "fsmount", "move_mount", "open_tree", "mount_setattr"}, ", "), nil
}
