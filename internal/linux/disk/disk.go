//go:build linux

// Package disk bounds the bytes and inodes of a directory by the kernel. A directory's files lie on a file system of
// their own: ext4 in a sparse image file, attached to a loop device and mounted at the directory. What is written
// beyond its size fails with ENOSPC, df(1) inside shows the limit, and one file holds everything.
//
// Only mke2fs, resize2fs, e2fsck and the kernel write the bytes of an image, so that the kernel may trust them; a
// new one may be a copy of what mke2fs wrote. An image is attached to one device at a time, whichever process asks,
// and the device goes with its last mount: a sandbox's own mount keeps it while no server runs. The mount lies on a
// shared mount: of the image's base, or of the directory itself. A namespace that was copied from this one would
// otherwise keep the file system after it is unmounted here.
//
// Project quotas would bound a plain directory, and are not used: they need a file system that is mounted with them,
// which a running machine cannot change for its root, and they do not bound what hard links and renames move out.
package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Image is a file system in a file, and the directory at which it is mounted. Both have the same parent, or the
// directory would keep its mount when the parent is renamed. Base is a directory above, if others are mounted below it.
type Image struct{ File, Dir, Base string }

// Size is the room of an image: what can be stored in it, beside what the file system needs for itself.
type Size struct{ Bytes, Inodes int64 }

const (
	block    = 4096
	inode    = 256 // bytes of one in the table
	journal  = 4 << 20
	group    = 128 << 20 // bytes of a block group
	perGroup = 8 * block // bitmaps and descriptors of a group
	reserved = 16        // inodes of the file system itself
)

// features is the list of ext4's, whatever the machine's mke2fs.conf has. Checksums let tables of inodes stay
// unwritten.
const features = "none,has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize," +
	"sparse_super,filetype,dir_index,ext_attr,large_file,meta_bg"

// length returns the bytes of an image with room for a size. It is pure.
func length(s Size) int64 {
	n := s.Bytes + (s.Inodes+reserved)*inode + journal
	n += min(n/50, 4096*block) + block // clusters that ext4 keeps free: 2 %, at most 4,096
	n += (n/group+2)*perGroup + n/1024
	return (n + block - 1) / block * block
}

// groups describe the block groups of an image: the bytes and the inodes of each. A file system with many inodes has
// small ones.
type groups struct {
	bytes, inodes int64
	all           int64 // bytes of the file system
}

// length returns the bytes of an image with these groups, and room for so many bytes. It is pure.
func (g groups) length(bytes int64) int64 {
	n := bytes
	for range 100 { // what groups need takes more groups
		count := n/g.bytes + 1
		next := length(Size{Bytes: bytes, Inodes: count*g.inodes - reserved}) + count*perGroup
		if next == n {
			break
		}
		n = next
	}
	return n
}

// groupsOf reads the groups of an image from its superblock: s_blocks_per_group, s_inodes_per_group, and
// s_blocks_count. That of a mounted file system is read from its device, which has what the kernel has not written yet.
func groupsOf(from *os.File) (groups, error) {
	var b [1024]byte
	_, err := from.ReadAt(b[:], 1024)
	at := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(b[offset:])) }
	g := groups{bytes: at(0x20) * block, inodes: at(0x28), all: (at(0x150)<<32 | at(0x4)) * block}
	if err == nil && (g.bytes < 1<<20 || g.inodes*inode >= g.bytes) {
		err = cove.Errorf(cove.Corrupt, "it is no file system of Cove's")
	}
	return g, err
}

// Make writes an empty file system. On error nothing is left. Errors: StorageFull, RuntimeMissing, Internal.
func (i Image) Make(ctx context.Context, s Size) (err error) {
	f, err := os.OpenFile(i.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed("make", i.File, err)
	}
	defer func() {
		if err != nil {
			os.Remove(i.File)
		}
	}()
	err = f.Truncate(length(s))
	if err = errors.Join(err, f.Close()); err != nil {
		return failed("make", i.File, err)
	}
	// A table of inodes is zeroed by the kernel as it is used, and a new file has nothing to discard. meta_bg lets the
	// file system grow while it is mounted without blocks kept for that.
	return i.tool(ctx, nil, "mkfs.ext4", "-q", "-F", "-b", strconv.Itoa(block), "-m", "0", "-I", strconv.Itoa(inode),
		"-N", strconv.FormatInt(s.Inodes+reserved, 10), "-J", "size="+strconv.Itoa(journal>>20),
		"-O", features, "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", i.File)
}

// open opens the image's file, and keeps others from changing what it is attached to until it is released.
func (i Image) open(ctx context.Context) (*opened, error) {
	file, err := os.OpenFile(i.File, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, failed("open", i.File, err)
	}
	held, err := lock(ctx, filepath.Dir(i.File), filelock.Exclusive)
	if err != nil {
		file.Close()
		return nil, failed("lock", i.File, err)
	}
	return &opened{file, held}, nil
}

// opened is the open file of an image, and the lock of its directory.
type opened struct{ file, lock *os.File }

func (o *opened) release() {
	o.lock.Close()
	o.file.Close()
}

// Mount mounts the image at its directory, which is made if need be, unless it is mounted there. Errors: StorageFull,
// Unsupported, Corrupt.
func (i Image) Mount(ctx context.Context) error { return i.mountBy(ctx, attach) }

// mountBy is Mount with what attaches the image to a device.
func (i Image) mountBy(ctx context.Context, attach func(*os.File) (*os.File, error)) error {
	if at, err := point(i.Dir); err == nil && at == above { // without the lock, which a copy holds for long
		if failed, err := i.failed(); err == nil && !failed {
			return nil
		}
	}
	o, err := i.open(ctx)
	if err != nil {
		return err
	}
	defer o.release()
	if err := os.Mkdir(i.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed("make", i.Dir, err)
	}
	held, based, err := i.hold(ctx)
	if err != nil {
		return err
	}
	defer held.Close()
	at, err := point(i.Dir)
	if err != nil {
		return failed("look at", i.Dir, err)
	}
	if at == above {
		if failed, err := i.failed(); err != nil || !failed {
			return err
		}
		return i.again(ctx, o)
	}
	device, err := attach(o.file)
	if err != nil {
		return failed("attach", i.File, err)
	}
	defer device.Close()
	if at == plain && !based {
		if err := unix.Mount(i.Dir, i.Dir, "", unix.MS_BIND, ""); err != nil {
			return failed("bind", i.Dir, err)
		}
		at = shared
	}
	if at == shared { // a process that was killed may have left it unshared
		if err := unix.Mount("", i.Dir, "", unix.MS_SHARED, ""); err != nil {
			return errors.Join(failed("share", i.Dir, err), i.unbind(at))
		}
	}
	if err = i.mountSound(o, device); err != nil {
		return errors.Join(failed("mount", i.File, err), i.unbind(at))
	}
	return nil
}

// unbind ends the mount of a directory on itself, if it has one.
func (i Image) unbind(at int) error {
	if at != shared {
		return nil
	}
	return unix.Unmount(i.Dir, unix.MNT_DETACH)
}

// mountSound mounts a device, and repairs its file system before if that has errors.
func (i Image) mountSound(o *opened, device *os.File) error {
	sound, err := sound(device)
	if err != nil {
		return err
	}
	if sound {
		if err = i.mount(device, 0); !errors.Is(err, unix.EUCLEAN) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := i.change(o, "e2fsck", "-p", device.Name()); err != nil {
		return err
	}
	return i.mount(device, 0)
}

func (i Image) mount(device *os.File, flags uintptr) error {
	// A new file holds zeros already, so that tables of inodes need no initialisation, which would fill it.
	return unix.Mount(device.Name(), i.Dir, "ext4", unix.MS_NOSUID|unix.MS_NODEV|flags,
		"discard,noinit_itable,errors=remount-ro")
}

// sound reports whether a superblock is without a note of errors: s_state, of which EXT4_ERROR_FS is 2.
func sound(device *os.File) (bool, error) {
	var state [2]byte
	if _, err := device.ReadAt(state[:], 1024+0x3a); err != nil {
		return false, err
	}
	return state[0]&2 == 0, nil
}

// failed reports whether the kernel has met an error in the mounted file system, and so writes no more to it. From
// Linux 6.12 on the mount does not become read-only by that.
func (i Image) failed() (bool, error) {
	root, err := mountOf(i.Dir)
	if err != nil {
		return false, failed("look at", i.Dir, err)
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(root.device), unix.Minor(root.device)))
	if err != nil {
		return false, failed("look for the device of", i.Dir, err)
	}
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // unmounted meanwhile
	}
	return strings.TrimSpace(string(count)) != "0", err
}

// again repairs an image to which the kernel writes no more, and mounts it again. While a sandbox has it too, it stays
// as it is.
func (i Image) again(ctx context.Context, o *opened) error {
	if err := unix.Unmount(i.Dir, unix.UMOUNT_NOFOLLOW); errors.Is(err, unix.EBUSY) {
		return nil
	} else if err != nil {
		return failed("unmount", i.Dir, err)
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	free := i.Released(soon)
	device, err := attach(o.file)
	if err != nil {
		return failed("attach", i.File, err)
	}
	defer device.Close()
	if free == nil {
		err = i.mountSound(o, device)
	} else if err = i.mount(device, 0); errors.Is(err, unix.EBUSY) { // before Linux 6.12 it is read-only
		err = i.mount(device, unix.MS_RDONLY)
	}
	if err != nil {
		return errors.Join(failed("mount", i.File, err), i.unmount())
	}
	return nil
}

// CopyTo copies what is on a mounted image into a new directory, except the entries of some names. It follows no link,
// and nothing may write to the image meanwhile. clear removes what an earlier copy has left there; one that outlives
// its process is waited for.
func (i Image) CopyTo(ctx context.Context, dir string, clear func(dir string) error, without ...string) error {
	o, err := i.open(ctx)
	if err != nil {
		return err
	}
	defer o.release()
	if err := clear(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return failed("make", dir, err)
	}
	entries, err := os.ReadDir(i.Dir)
	if err != nil {
		return failed("read", i.Dir, err)
	}
	args := []string{"-a", "--sparse=always", "--target-directory=" + dir, "--"}
	for _, e := range entries {
		if e.Name() != "lost+found" && !slices.Contains(without, e.Name()) {
			args = append(args, filepath.Join(i.Dir, e.Name()))
		}
	}
	return i.tool(ctx, o.lock, "cp", args...)
}

// Unmount ends every mount at the directory, and that of the base with its last image. The device goes when no sandbox
// has the file system any more.
func (i Image) Unmount() error {
	if err := i.unmount(); err != nil || i.Base == "" {
		return err
	}
	return DropBase(i.Base)
}

func (i Image) unmount() error {
	for range 16 { // mounts on top of each other; two, if nothing else has mounted there
		err := unix.Unmount(i.Dir, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) { // a process of the host works there
			err = unix.Unmount(i.Dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		// Nothing is mounted there.
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil
		case err != nil:
			return failed("unmount", i.Dir, err)
		}
	}
	return nil
}

// Released waits for the end of an unmounted image's device, which follows its last mount. Errors: Conflict.
func (i Image) Released(ctx context.Context) error {
	file, err := os.Open(i.File)
	if err != nil {
		return failed("open", i.File, err)
	}
	defer file.Close()
	for range 500 {
		device, err := attached(file)
		if err != nil {
			return failed("look for the device of", i.File, err)
		}
		if device == nil {
			return nil
		}
		device.Close()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return cove.Errorf(cove.Canceled, "waiting for a disk: %w", ctx.Err())
		}
	}
	return cove.Errorf(cove.Conflict, "the disk is still in use by another process").WithHint("try again in a moment")
}

// Resize changes the room. A mounted image grows at once; only one that is not mounted anywhere shrinks, if its content
// fits. The number of inodes goes with the bytes. Errors: Conflict, StorageFull, RuntimeMissing.
func (i Image) Resize(ctx context.Context, bytes int64) error {
	o, err := i.open(ctx)
	if err != nil {
		return err
	}
	defer o.release()
	device, err := attached(o.file)
	if err != nil {
		return failed("look for the device of", i.File, err)
	}
	from := o.file
	if device != nil {
		defer device.Close()
		from = device
	}
	groups, err := groupsOf(from)
	if err != nil {
		return failed("read", i.File, err)
	}
	want := groups.length(bytes)
	smaller := want < groups.all
	if device != nil && smaller {
		return cove.Errorf(cove.Conflict, "a disk cannot become smaller while it is in use").
			WithHint("stop the sandbox first")
	}
	if err := stretch(o.file, device, want); err != nil {
		return failed("grow", i.File, err)
	}
	if device != nil {
		return i.change(o, "resize2fs", device.Name(), kib(want))
	}
	if err := i.change(o, "e2fsck", "-f", "-p", i.File); err != nil {
		return err
	}
	if err := i.change(o, "resize2fs", i.File, kib(want)); err != nil {
		if smaller && cove.ErrorCode(err) == cove.Internal {
			return cove.Errorf(cove.Conflict, "the disk cannot become so small: %w", err).
				WithHint("remove some of what is stored on it, or choose a larger size")
		}
		return err
	}
	if err := o.file.Truncate(want); err != nil {
		return failed("shrink", i.File, err)
	}
	return nil
}

// kib writes a size as resize2fs reads it.
func kib(bytes int64) string { return strconv.FormatInt(bytes/1024, 10) + "K" }

// stretch makes an image longer, and its device, if it has one. It makes none shorter, also not after a failure: the
// file system may have grown into what was added, which takes no room where it has not.
func stretch(file, device *os.File, length int64) error {
	info, err := file.Stat()
	if err == nil && info.Size() < length {
		err = file.Truncate(length)
	}
	if err != nil || device == nil {
		return err
	}
	return unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0)
}

// Use describes what a file system holds and can hold.
type Use struct {
	Bytes, Room        int64 // used, and free beside that
	Inodes, InodesLeft int64
	Host               int64 // bytes of the image on the host's disk
}

// Full reports whether hardly anything can be stored. ext4 refuses a write before the last blocks are used, since it
// may need some to find the others.
func (u Use) Full() bool { return u.Room < 64*block || u.InodesLeft == 0 }

// Used returns the use of a mounted image.
func (i Image) Used() (Use, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(i.Dir, &st); err != nil {
		return Use{}, failed("look at", i.Dir, err)
	}
	var file unix.Stat_t
	if err := unix.Stat(i.File, &file); err != nil {
		return Use{}, failed("look at", i.File, err)
	}
	return Use{
		Bytes: int64(st.Blocks-st.Bfree) * st.Bsize, Room: int64(st.Bavail) * st.Bsize,
		Inodes: int64(st.Files - st.Ffree), InodesLeft: int64(st.Ffree), Host: file.Blocks * 512,
	}, nil
}

// Values of point.
const (
	plain  = iota // a directory
	shared        // mounted on itself
	above         // with a file system on top
)

// point returns what is mounted at a directory.
func point(dir string) (int, error) {
	root, err := mountOf(dir)
	if err != nil || !root.is {
		return plain, err
	}
	parent, err := mountOf(filepath.Dir(dir))
	if err != nil {
		return plain, err
	}
	if root.device == parent.device {
		return shared, nil
	}
	return above, nil
}

type mountPoint struct {
	is     bool // the root of a mount
	device uint64
}

func mountOf(dir string) (mountPoint, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &st); err != nil {
		return mountPoint{}, err
	}
	return mountPoint{st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, unix.Mkdev(st.Dev_major, st.Dev_minor)}, nil
}

// lock waits for the lock of a directory. Exclusive, it keeps other processes from attaching the images in it, until
// the file is closed by this one and by the programs that inherit it. Errors: Canceled.
func lock(ctx context.Context, dir string, k filelock.Kind) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = filelock.Wait(ctx, f, k); err == nil {
		return f, nil
	}
	f.Close()
	if ctx.Err() != nil {
		err = cove.Errorf(cove.Canceled, "waiting for another process that uses the disk: %w", ctx.Err())
	}
	return nil, err
}
