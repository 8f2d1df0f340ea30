//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BlockIO limits what is read and written of block devices. A group has this controller from its first such limit on,
// so that others do not pay for it.
const BlockIO = "io"

// throttle is version 1's file for one of the limits; kernels without throttling lack all of them.
const throttle = "blkio.throttle.write_bps_device"

// Throughput limits what a group reads, and as much what it writes, of a block device per second; zero limits nothing.
type Throughput struct {
	Bytes      int64
	Operations int64
}

// findBlockIO notes where groups with a limit of throughput are made, for root alone: others own no block devices.
// On version 2 the controller is enabled in base when it is first needed.
func (h *Hierarchy) findBlockIO(base, dir string) {
	why := ""
	switch {
	case os.Geteuid() != 0:
		why = "limits of block devices need root"
	case h.version == 1:
		if _, err := os.Stat(filepath.Join(base, throttle)); err != nil {
			why = "the kernel throttles no block devices: " + cause(err)
		}
	case !slices.Contains(words(base, "cgroup.controllers"), BlockIO):
		why = base + " has no " + BlockIO + " controller"
	}
	if why != "" {
		h.missing[BlockIO] = why
		return
	}
	h.dirs[BlockIO] = dir
}

// Throttle limits what the group reads and writes of a block device at a path. On version 1 it moves the group's
// processes, of which none may fork meanwhile.
func (g *Group) Throttle(path string, t Throughput) error {
	if !g.h.Has(BlockIO) {
		return fmt.Errorf("no %s controller: %s", BlockIO, g.h.Missing(BlockIO))
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("%s is no block device", path)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if err := g.joinBlockIO(); err != nil {
		return err
	}
	for _, s := range t.settings(g.h.version, device) {
		if err := write(g.dir(BlockIO), s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) joinBlockIO() error {
	if g.h.version == 2 {
		place := g.h.dirs[BlockIO]
		return errors.Join(enable(filepath.Dir(place), BlockIO), enable(place, BlockIO))
	}
	for _, dir := range []string{g.h.dirs[BlockIO], g.dir(BlockIO)} {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	pids, err := processes(g.dir(PIDs))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue // a thread of this process that started a child there, and ends soon
		}
		if err := write(g.dir(BlockIO), "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// setting is a file of a group, and what is written to it.
type setting struct{ name, value string }

// settings returns the files and values that set t: of the throttle of blkio (version 1), or of io.max. It is pure.
func (t Throughput) settings(version int, device string) []setting {
	var all []setting
	line := device
	for _, limit := range []struct {
		unit  string
		value int64
	}{{"bps", t.Bytes}, {"iops", t.Operations}} {
		if limit.value <= 0 {
			continue
		}
		value := strconv.FormatInt(limit.value, 10)
		for _, direction := range []string{"read", "write"} {
			all = append(all, setting{"blkio.throttle." + direction + "_" + limit.unit + "_device", device + " " + value})
			line += " " + direction[:1] + limit.unit + "=" + value
		}
	}
	if version == 1 || len(all) == 0 {
		return all
	}
	return []setting{{"io.max", line}}
}

// words returns the words of a group's file; none if it cannot be read.
func words(dir, name string) []string {
	data, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.Fields(string(data))
}
