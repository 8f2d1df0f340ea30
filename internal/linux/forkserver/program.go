//go:build linux

package forkserver

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is an executable as an open file. A process is started from its descriptor, so the directories above the file
// may be closed to the users of sandboxes, and an upgrade may replace it while the server runs.
type Program struct{ file *os.File }

// firstProgram is the lowest descriptor of a Program, above those at which a child process has its files.
const firstProgram = 64

// OpenProgram opens the program at a path. The error is EMFILE if no descriptor is left.
func OpenProgram(path string) (*Program, error) {
	low, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	return above(low)
}

// above takes over a file, for a descriptor of a Program.
func above(low *os.File) (*Program, error) {
	defer low.Close()
	fd, err := unix.FcntlInt(low.Fd(), unix.F_DUPFD_CLOEXEC, firstProgram)
	if errors.Is(err, unix.EINVAL) {
		err = unix.EMFILE // the limit is below firstProgram
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Program{os.NewFile(uintptr(fd), low.Name())}, nil
}

// forAll are the bits of a mode with which every user may read and execute a file.
const forAll = 0o005

// fixed opens the program through a mount of its own, which is read-only and in no directory. The error is EPERM where
// this process may not mount, and for a file that not every user may execute: a keeper is another user.
func (p *Program) fixed() (*Program, error) {
	if info, err := p.file.Stat(); err != nil || info.Mode()&forAll != forAll {
		return nil, cmp.Or(err, error(unix.EPERM))
	}
	fd, err := unix.OpenTree(int(p.file.Fd()), "",
		unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("open_tree", err)
	}
	tree := os.NewFile(uintptr(fd), p.file.Name())
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE,
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	if err != nil {
		tree.Close()
		return nil, os.NewSyscallError("mount_setattr", err)
	}
	return above(tree)
}

// Path returns the path of the program in this process, and between fork and exec in children that are given the files
// of Among.
func (p *Program) Path() string { return "/proc/self/fd/" + strconv.Itoa(int(p.file.Fd())) }

// Among returns the files for a child that is to be started from Path: those it needs, and the program as the last one.
// A child moves files to descriptors above those it is given before it has each in its place, and would put one where
// the program is.
func (p *Program) Among(files ...*os.File) []*os.File {
	return append(files[:len(files):len(files)], p.file)
}

// File returns the program's own file.
func (p *Program) File() *os.File { return p.file }

// startServer starts a fork server from a read-only mount of its program, or has it make a copy first (fixed).
func startServer(program *Program, args, env []string, socket *os.File) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	mode := modeServe
	fixed, err := program.fixed()
	switch {
	case err == nil:
		defer fixed.Close()
		program = fixed
	case errors.Is(err, unix.EPERM):
		mode = modeCopy
	default:
		return nil, err
	}
	args = append([]string{args[0], mode}, args[1:]...)
	return os.StartProcess(program.Path(), args, &os.ProcAttr{Env: env,
		Files: program.Among(null, null, os.Stderr, socket), Sys: &syscall.SysProcAttr{Setsid: true}})
}

// Close closes the file; what was started from it goes on.
func (p *Program) Close() error { return p.file.Close() }
