//go:build linux

package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// attach returns the loop device of an image, attached by this call or before. The lock of the image's directory must
// be held. While the device is open, it stays attached.
func attach(image *os.File) (*os.File, error) {
	if device, err := attached(image); device != nil || err != nil {
		return device, err
	}
	return attachNew(image)
}

// attachNew is attach for an image that no process can have attached. It does not look at the devices of this machine,
// of which there may be many.
func attachNew(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, cove.Errorf(cove.Unsupported, "this machine has no loop devices").WithHint("run \"modprobe loop\"")
	}
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for try := 0; ; try++ {
		device, err := attachTo(control, image)
		if !errors.Is(err, unix.EBUSY) || try == 100 { // another process was faster
			return device, err
		}
	}
}

func attachTo(control, image *os.File) (*os.File, error) {
	free, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
	}
	device, err := os.OpenFile("/dev/loop"+strconv.Itoa(free), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: block,
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO}}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
	err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	if errors.Is(err, unix.EINVAL) { // a file system without direct I/O
		config.Info.Flags &^= unix.LO_FLAGS_DIRECT_IO
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
	}
	if err != nil {
		device.Close()
		return nil, os.NewSyscallError("LOOP_CONFIGURE", err)
	}
	return device, nil
}

// Device returns the path of the loop device of an image that is mounted.
func (i Image) Device() (string, error) {
	m, err := mountOf(i.Dir)
	if err != nil {
		return "", failed("look at", i.Dir, err)
	}
	name, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(m.device), unix.Minor(m.device)))
	if err != nil {
		return "", failed("find the device of", i.Dir, err)
	}
	return "/dev/" + filepath.Base(name), nil
}

// attached returns the loop device that an image is attached to, open for reading; nil if there is none. Other devices
// are not opened: that would keep one attached which is about to go.
func attached(image *os.File) (*os.File, error) {
	var of unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &of); err != nil {
		return nil, err
	}
	// The kernel makes this file while a device is attached. Its directories are those of another mount namespace,
	// perhaps, but its name is that of the image.
	all, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), "loop") {
			continue
		}
		device, err := attachedTo(e.Name(), image.Name(), of)
		if err != nil || device != nil {
			return device, err
		}
	}
	return nil, nil
}

// attachedTo returns a loop device, open for reading, if an image is attached to it; otherwise nil. An error is not
// taken for that: the image would be attached twice.
func attachedTo(name, image string, of unix.Stat_t) (*os.File, error) {
	backing, err := os.ReadFile("/sys/block/" + name + "/loop/backing_file")
	if err != nil {
		return nil, unlessGone(err)
	}
	if ending(strings.TrimSuffix(strings.TrimSuffix(string(backing), "\n"), " (deleted)")) != ending(image) {
		return nil, nil
	}
	device, err := os.Open("/dev/" + name)
	if err != nil {
		return nil, unlessGone(err)
	}
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err == nil && status.Inode == of.Ino && status.Device == of.Dev {
		return device, nil
	}
	device.Close()
	return nil, unlessGone(err)
}

// unlessGone returns an error, except that of a device that is not attached any more.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// ending returns the last two elements of a path.
func ending(path string) string {
	dir, file := filepath.Split(path)
	return filepath.Join(filepath.Base(dir), file)
}

// releasePatience is how long Rest waits for the end of the device.
const releasePatience = 2 * time.Second

// Rest writes out what is on a mounted image, and unmounts it, so that its file has everything. A process of the host
// that works there may keep its device beyond that.
func (i Image) Rest(ctx context.Context) error {
	if is, err := i.Mounted(); err != nil || !is {
		return err
	}
	if err := i.sync(); err != nil {
		return err
	}
	if err := i.Unmount(); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	_ = i.Released(soon)
	return writeOut(i.File, unix.Fsync)
}

func (i Image) sync() error { return writeOut(i.Dir, unix.Syncfs) }

func writeOut(path string, by func(fd int) error) error {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		err = by(int(f.Fd()))
	}
	if err != nil {
		return failed("write out", path, err)
	}
	return nil
}

// Quiet calls f while the file of a mounted image has what is on it, and again where something has written meanwhile.
// Errors: those of f, Conflict.
func (i Image) Quiet(f func() error) error {
	for range 3 {
		err := i.sync()
		was := i.written()
		if err == nil {
			err = f()
		}
		if err != nil || i.written() == was {
			return err
		}
	}
	return cove.Errorf(cove.Conflict, "the disk %s is written to all the time", i.File).WithHint("stop the sandbox first")
}

// written returns the counts of what was written to the device of a mounted image.
func (i Image) written() string {
	m, err := mountOf(i.Dir)
	stat, _ := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(m.device), unix.Minor(m.device)))
	if all := strings.Fields(string(stat)); err == nil && len(all) > 6 {
		return all[4] + " " + all[6]
	}
	return ""
}

// UsedAtRest returns the use of an image that is not mounted, of which its superblock tells: s_blocks_count,
// s_free_blocks_count, s_overhead_clusters, s_inodes_count and s_free_inodes_count.
func (i Image) UsedAtRest() (u Use, err error) {
	f, err := os.Open(i.File)
	if err != nil {
		return u, failed("open", i.File, err)
	}
	defer f.Close()
	g, err := groupsOf(f)
	var file unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &file)
	}
	var b [1024]byte
	if err == nil {
		_, err = f.ReadAt(b[:], 1024)
	}
	if err != nil {
		return u, failed("read", i.File, err)
	}
	at := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(b[offset:])) }
	u.Room, u.InodesLeft, u.Host = (at(0x158)<<32|at(0xc))*block, at(0x10), file.Blocks*512
	u.Bytes, u.Inodes = max(0, g.all-at(0x248)*block-u.Room), at(0)-u.InodesLeft
	return u, nil
}

// Mounted reports whether a file system is mounted at the directory.
func (i Image) Mounted() (bool, error) {
	at, err := point(i.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return at == above, err
}
