//go:build linux

package forkserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/await"
)

// TestMountsLeftOut: a process in a new mount namespace has none of the mounts below a directory, however many they
// are, and every other one that is there when it starts, whether the host's mounts are shared or not.
func TestMountsLeftOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts")
	}
	for name, propagation := range map[string]uintptr{"shared": unix.MS_SHARED, "private": unix.MS_PRIVATE} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			mount(t, top, propagation)
			disks, other := filepath.Join(top, "disks"), filepath.Join(top, "other")
			for _, dir := range []string{disks, other} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			server := launchWithout(t, disks)
			sees := func(disk, theOther bool) {
				t.Helper()
				points := mountsSeen(t, server)
				got := [2]bool{strings.Contains(points, " "+disks), strings.Contains(points, " "+other+" ")}
				if got != [2]bool{disk, theOther} {
					t.Errorf("disks and another mount are seen: %v, want %t and %t", got, disk, theOther)
				}
			}
			sees(false, false)
			mount(t, disks, unix.MS_SHARED)
			before := strings.Count(mountsSeen(t, server), " "+top)
			for n := range 200 {
				dir := filepath.Join(disks, fmt.Sprint(n))
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				mount(t, dir, 0)
			}
			if after := strings.Count(mountsSeen(t, server), " "+top); after != before {
				t.Errorf("200 disks more make %d mounts of %d", after, before)
			}
			sees(false, false)
			mount(t, other, 0)
			sees(false, true)
			if err := unix.Unmount(other, 0); err != nil {
				t.Fatal(err)
			}
			await.That(t, "the fork server does not hold what was unmounted", func() bool { return idle(t, server) })
			sees(false, false)
			if err := unix.Unmount(disks, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			mount(t, other, 0)
			sees(false, true)
		})
	}
}

// mount mounts a file system in memory, or, for the top of others, gives the mount a propagation.
func mount(t *testing.T, dir string, propagation uintptr) {
	t.Helper()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")
	if err == nil && propagation != 0 {
		err = unix.Mount("", dir, "", propagation, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
}

// mountsSeen is mountinfo of a process that has just been started.
func mountsSeen(t *testing.T, server *Client) string {
	t.Helper()
	s := apart
	s.Namespaces |= unix.CLONE_NEWNS
	p := start(t, server, s)
	p.answers(t)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.PID()))
	if err := errors.Join(err, p.Kill(), p.Wait()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// idle reports whether a fork server holds no mount namespace beside its own.
func idle(t *testing.T, server *Client) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", server.PID()))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", server.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.HasPrefix(to, "mnt:") && to != own {
			return false
		}
	}
	return true
}
