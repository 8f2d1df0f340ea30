package main

import (
	"bytes"
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
)

// inventory is what a step must not add to.
type inventory struct {
	cgroups map[string]bool
	mounts  map[string]bool // lines of mountinfo
}

func takeInventory() inventory {
	inv := inventory{cgroups: map[string]bool{}, mounts: map[string]bool{}}
	_ = filepath.WalkDir(cgroupRoot, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			inv.cgroups[path] = true
		}
		return nil
	})
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		inv.mounts[strings.TrimSpace(line)] = true
	}
	return inv
}

// settle gives the processes a step has started a moment to go on their own, and names those that stay.
func settle() []string {
	var left []string
	for range 50 {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid == 0 {
				break
			}
		}
		if left = processes(); len(left) == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return left
}

// processes names every process but this one and the kernel's own.
func processes() []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil || parentOf(stat) == 2 || pid == 2 { // kthreadd's
			continue
		}
		args, _ := os.ReadFile(dir + "/cmdline")
		group, _ := os.ReadFile(dir + "/cgroup")
		left = append(left, fmt.Sprintf("process %d: %q in %s", pid,
			bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '}), bytes.TrimSpace(group)))
	}
	return left
}

// parentOf reads the fourth field of a stat file; the second, in parentheses, may hold anything.
func parentOf(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(fields[1]))
	return ppid
}

// cleanUp removes control groups and mounts that are not in before, and names them.
func cleanUp(before inventory) []string {
	now := takeInventory()
	var left []string
	for line := range now.mounts {
		if before.mounts[line] {
			continue
		}
		left = append(left, "mount "+line)
		if fields := strings.Fields(line); len(fields) > 4 {
			_ = unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
	var groups []string
	for path := range now.cgroups {
		if !before.cgroups[path] {
			groups = append(groups, path)
			left = append(left, "control group "+path)
		}
	}
	slices.SortFunc(groups, func(a, b string) int { return len(b) - len(a) }) // children first
	for _, path := range groups {
		for range 50 { // busy while the last process is being taken down
			if err := unix.Rmdir(path); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	slices.Sort(left)
	return left
}
