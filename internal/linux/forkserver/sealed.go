//go:build linux

package forkserver

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// A process names its executable in /proc/PID/exe, and so do its children until they execute another one. In a sandbox
// whose user is the file's owner, as an ordinary user's is, programs could change that file. A fork server, whose
// children are the first processes of sandboxes, and keepers therefore reach their program through a mount that is
// read-only and in no directory. Root makes that mount before it starts a fork server. An ordinary user can mount in a
// user namespace alone, and there the mount is a file system in memory with a copy. No process of a sandbox has the
// capability that changes a mount, and the executor that makes the copy ends with it.

// become has this process run from a sealed copy of its program. It returns only if that fails.
func become(without string) error {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	program, err := sealed(own)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(program.Fd()), programFD, 0); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	args := []string{os.Args[0], modeServe, without}
	return os.NewSyscallError("execve", unix.Exec("/proc/self/fd/"+strconv.Itoa(programFD), args, os.Environ()))
}

// sealed returns a copy of a program, opened with O_PATH, which an executor in namespaces of its own has made.
func sealed(own *os.File) (*os.File, error) {
	info, err := own.Stat()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	p, err := forkExecutor(unix.CLONE_NEWUSER|unix.CLONE_NEWNS, cgroup.Door{}, []*os.File{null, null, null, theirs})
	theirs.Close()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer p.Wait()
	e := executor.NewClient(conn, func(int, unix.WaitStatus) error { return nil })
	defer e.Close()
	for _, m := range [][2]string{{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("0 %d 1", os.Geteuid())},
		{"gid_map", fmt.Sprintf("0 %d 1", os.Getegid())}} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", p.Pid, m[0]), []byte(m[1]), 0); err != nil {
			return nil, err
		}
	}
	_, files, err := e.Run(context.Background(), copyScript(info.Size()), int(own.Fd()))
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// copyScript copies the first file of its request, of a size in bytes, to a file system of its own, which is read-only
// then, and gives the copy.
func copyScript(size int64) *executor.Script {
	num := executor.Number[int]
	s := executor.New(0, 1)
	s.Doing("become the owner of the copy")
	s.Do(unix.SYS_SETRESGID, num(0), num(0), num(0))
	s.Do(unix.SYS_SETRESUID, num(0), num(0), num(0))
	s.Doing("make a file system in memory")
	fs := s.Call(unix.SYS_FSOPEN, s.Text("tmpfs"), num(unix.FSOPEN_CLOEXEC))
	s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_SET_STRING), s.Text("mode"), s.Text("0755"), num(0))
	s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_CMD_CREATE), num(0), num(0), num(0))
	tree := s.Call(unix.SYS_FSMOUNT, fs, num(unix.FSMOUNT_CLOEXEC), num(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV))
	s.Doing("copy the program")
	name := s.Text("cove-guest")
	file := s.Call(unix.SYS_OPENAT, tree, name, num(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC), num(0o600))
	copied := s.Call(unix.SYS_SENDFILE, file, s.File(0), num(0), num(int(size)))
	s.FailUnless(copied, math.MaxUint64, uint64(size), num(int(unix.EIO)))
	s.Do(unix.SYS_FCHMOD, file, num(0o555))
	s.Do(unix.SYS_CLOSE, file)
	s.Doing("make the copy read-only")
	attributes := executor.Structure(unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	s.Do(unix.SYS_MOUNT_SETATTR, tree, s.Text(""), num(unix.AT_EMPTY_PATH), s.Bytes(attributes), num(len(attributes)))
	s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_SET_FLAG), s.Text("ro"), num(0), num(0))
	s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_CMD_RECONFIGURE), num(0), num(0), num(0))
	s.Give(s.Call(unix.SYS_OPENAT, tree, name, num(unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC), num(0)))
	return s
}
