//go:build linux

package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

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
