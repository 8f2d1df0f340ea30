//go:build linux

package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// releasePatience is how long Rest waits for the end of the device.
const releasePatience = 2 * time.Second

// Rest writes out what is on a mounted image, and unmounts it, so that its file has everything. Another process, as of
// the host's in its directory, may keep its device beyond that: what was written is in the file then, too.
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
	file, err := os.Open(i.File)
	if err != nil {
		return failed("open", i.File, err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return failed("write out", i.File, err)
	}
	return nil
}

// Quiet calls f while the file of an image has what is on it. It is for a mounted one that nothing writes to: where
// something has written meanwhile, it calls f again. Errors: those of f, Conflict.
func (i Image) Quiet(f func() error) error {
	for range 3 {
		if err := i.sync(); err != nil {
			return err
		}
		was, err := i.written()
		if err == nil {
			err = f()
		}
		if err != nil {
			return err
		}
		if now, err := i.written(); err != nil || now == was {
			return err
		}
	}
	return cove.Errorf(cove.Conflict, "the disk %s is written to all the time", i.File).WithHint("stop the sandbox first")
}

// written returns the count of sectors that were written to the device of a mounted image.
func (i Image) written() (string, error) {
	device, err := i.Device()
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "stat"))
	if fields := strings.Fields(string(stat)); err == nil && len(fields) > 6 {
		return fields[6], nil
	}
	return "", cmp.Or(err, fmt.Errorf("no counts of %s", device))
}

func (i Image) sync() error {
	dir, err := os.Open(i.Dir)
	if err != nil {
		return failed("open", i.Dir, err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return failed("write out", i.Dir, err)
	}
	return nil
}

// UsedAtRest returns the use of an image that is not mounted, of which its superblock tells: s_blocks_count,
// s_free_blocks_count, s_overhead_clusters, s_inodes_count and s_free_inodes_count.
func (i Image) UsedAtRest() (u Use, err error) {
	file, err := os.Open(i.File)
	if err != nil {
		return u, failed("open", i.File, err)
	}
	defer file.Close()
	g, err := groupsOf(file)
	var b [1024]byte
	if err == nil {
		_, err = file.ReadAt(b[:], 1024)
	}
	var info os.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	if err != nil {
		return u, failed("read", i.File, err)
	}
	at := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(b[offset:])) }
	u.Room = (at(0x158)<<32 | at(0xc)) * block
	u.Bytes = max(0, g.all-at(0x248)*block-u.Room)
	u.InodesLeft = at(0x10)
	u.Inodes = at(0) - u.InodesLeft
	u.Host = info.Sys().(*syscall.Stat_t).Blocks * 512
	return u, nil
}
