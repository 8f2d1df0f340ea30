//go:build linux

// Package mounts makes detached mounts that map one owner of the host to another, and attaches them in the mount
// namespace of another process.
package mounts

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Clone makes a detached private copy of the mount at a path, without its submounts. The path is relative to a
// directory's descriptor or unix.AT_FDCWD; an empty one means the descriptor itself. What is mounted on the copy does
// not appear on the original, which is a shared mount on hosts with systemd.
func Clone(dir int, path string) (*os.File, error) {
	fd, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	tree := os.NewFile(uintptr(fd), path)
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		tree.Close()
		return nil, fmt.Errorf("make a copy of the mount %s private: %w", path, err)
	}
	return tree, nil
}

// Map makes a detached mount idmapped by a user namespace: ids inside it are the file system's, ids outside are the
// owners that appear.
func Map(tree, userns *os.File) error {
	return unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())})
}

// Restrict sets attributes of a detached mount: unix.MOUNT_ATTR_RDONLY and others.
func Restrict(tree *os.File, attributes uint64) error {
	return unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes})
}

// CanMap reports whether the kernel supports Map (5.12). A file system may lack it nevertheless.
func CanMap() bool {
	return unix.MountSetattr(-1, "", 0, &unix.MountAttr{}) != unix.ENOSYS
}

// Owner is the owner of files.
type Owner struct{ UID, GID int }

// Ownership makes a user namespace that maps the owner of to as. A process of program holds it, which waits until its
// standard input ends.
func Ownership(program string, args, env []string, of, as Owner) (*os.File, error) {
	var input [2]int
	if err := unix.Pipe2(input[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	pid, err := syscall.ForkExec(program, args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{uintptr(input[0])},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: of.UID, HostID: as.UID, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: of.GID, HostID: as.GID, Size: 1}},
		},
	})
	unix.Close(input[0])
	if err != nil {
		unix.Close(input[1])
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	userns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	unix.Close(input[1])
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	return userns, err
}
