package image

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// userPath resolves a user's path and applies the store's check.
func (s *Store) userPath(path string) (string, error) {
	real, err := s.checkPath(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", cove.Errorf(cove.NotFound, "%s does not exist", path)
	case err != nil:
		return "", storage(err, "look at "+path)
	}
	return real, nil
}

// openChecked opens a path of userPath without following symlinks: the checked file is the one that is read, even if
// the path is changed meanwhile. It does not wait for a FIFO.
func openChecked(path string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), path), nil
	case unix.ENOENT:
		return nil, cove.Errorf(cove.NotFound, "%s does not exist", path)
	case unix.ENOTDIR:
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not a directory", path)
	case unix.ELOOP:
		return nil, cove.Errorf(cove.Forbidden, "%s was changed while it was being opened", path)
	}
	return nil, storage(&fs.PathError{Op: "open", Path: path, Err: err}, "read the source")
}

// openRegular opens a user's file and verifies that it is regular.
func openRegular(path string) (*os.File, error) {
	f, err := openChecked(path, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, cove.Errorf(cove.InvalidArgument, "%s is not a regular file", path)
	}
	return f, nil
}

func openRoot(path string) (*os.Root, error) {
	f, err := openChecked(path, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, storage(err, "open "+path)
	}
	return root, nil
}
