//go:build linux

package forkserver

import (
	"errors"
	"io"
	"os"
	"strconv"

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
	defer low.Close()
	fd, err := unix.FcntlInt(low.Fd(), unix.F_DUPFD_CLOEXEC, firstProgram)
	if errors.Is(err, unix.EINVAL) {
		err = unix.EMFILE // the limit is below firstProgram
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Program{os.NewFile(uintptr(fd), path)}, nil
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

// forAll are the bits of a mode with which every user may read and execute a file.
const forAll = 0o005

// Open opens the program for a process that is another user's: as it is, or a copy in memory where the file is its
// owner's alone.
func (p *Program) Open() (*os.File, error) {
	own, err := os.Open(p.Path())
	if err != nil {
		return nil, err
	}
	if info, err := own.Stat(); err != nil || info.Mode()&forAll == forAll {
		return own, err
	}
	defer own.Close()
	fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	memory := os.NewFile(uintptr(fd), "program")
	defer memory.Close()
	_, err = io.Copy(memory, own)
	if err == nil {
		err = memory.Chmod(0o555)
	}
	if err == nil {
		_, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH, 0) // none that may write is open at an exec
}

// Close closes the file; what was started from it goes on.
func (p *Program) Close() error { return p.file.Close() }
