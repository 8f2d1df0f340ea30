//go:build linux

package forkserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// A process names its executable in /proc/PID/exe, and so do its children until they execute another one. What a
// sandbox reaches so it could change where the file's owner has an id inside, as an ordinary user has. Neither a fork
// server, whose children are the first processes of sandboxes, nor a keeper therefore runs from a file of the host, but
// from a copy on a file system of its own: in memory, read-only, and mounted nowhere. No process of a sandbox has the
// capability that changes a mount; those of one that makes the copy end with it.

// Modes of the program of a fork server.
const (
	modeFork  = "--fork"  // has itself sealed
	modeCopy  = "--copy"  // makes the sealed copy, in namespaces of its own
	modeServe = "--serve" // runs from the sealed copy
)

// Descriptors of the modes: the connection, and the program itself.
const (
	socketFD  = 3
	programFD = 4
)

// Run is the program of a fork server, in one of its modes; the first is that of Args. It has the connection to its
// client at descriptor 3, and the file of its program at the next one.
func Run(mode, without string) error {
	var err error
	if mode == modeFork {
		err = become(without) // and then this goes on in modeServe
	}
	conn, connErr := unixconn.New(socketFD)
	if connErr != nil {
		return errors.Join(err, connErr)
	}
	defer conn.Close()
	if mode == modeServe {
		return Serve(conn, os.NewFile(programFD, "program"), without)
	}
	s := &server{conn: conn}
	var program *os.File
	if mode == modeCopy {
		program, err = sealed()
	}
	if err != nil {
		return errors.Join(err, s.answer(refusal(0, failed(OpCopy, err))))
	}
	defer program.Close()
	return s.answer(answer{}, program)
}

// become has this process run from a sealed copy of its program. It returns only if that fails.
func become(without string) error {
	program, err := sealed()
	if errors.Is(err, unix.EPERM) { // an ordinary user mounts in a user namespace
		program, err = sealedApart()
	}
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(program.Fd()), programFD, 0); err != nil {
		return os.NewSyscallError("dup3", err)
	}
	args := []string{os.Args[0], modeServe, without}
	return os.NewSyscallError("execve", unix.Exec("/proc/self/fd/"+strconv.Itoa(programFD), args, os.Environ()))
}

// sealed returns a copy of this process's program, opened with O_PATH. The error is EPERM where the process may not
// mount.
func sealed() (*os.File, error) {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "mode", "0755"), unix.FsconfigCreate(fs)); err != nil {
		return nil, fmt.Errorf("make a file system in memory: %w", err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(tree) // which lasts as long as what is open of it
	const name = "cove-guest"
	if err := write(tree, name, own); err != nil {
		return nil, err
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	err = errors.Join(err, unix.FsconfigSetFlag(fs, "ro"), unix.FsconfigReconfigure(fs))
	if err != nil {
		return nil, fmt.Errorf("make the copy of the program read-only: %w", err)
	}
	fd, err := unix.Openat(tree, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func write(dir int, name string, content io.Reader) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	copied := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(copied, content)
	return errors.Join(err, copied.Chmod(0o555), copied.Close())
}

// sealedApart has a process in namespaces of its own make the copy.
func sealedApart() (*os.File, error) {
	conn, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	defer null.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], modeCopy}, &os.ProcAttr{Env: os.Environ(),
		Files: []*os.File{null, null, os.Stderr, theirs},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}})
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	defer p.Wait()
	var a answer
	if err = json.NewDecoder(conn).Decode(&a); err == nil {
		err = a.err()
	}
	if err != nil {
		return nil, fmt.Errorf("in a user namespace: %w", err)
	}
	files, err := conn.TakeFDs(1)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}
