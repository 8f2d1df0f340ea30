package hostpath

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// open opens a path that Check has returned, as a place (O_PATH). No symbolic link is followed any more, and what was
// opened is judged again by the name the kernel has for it, so a path that is changed in between gives an error and
// never another place. Errors: NotFound, Forbidden, InvalidArgument.
func open(resolved string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, resolved,
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, cove.Errorf(cove.NotFound, "the host path %q does not exist", resolved)
	case errors.Is(err, unix.ELOOP):
		return nil, changed(resolved)
	case err != nil:
		return nil, cove.Errorf(cove.InvalidArgument, "the host path %q cannot be opened: %w", resolved, err)
	}
	f := os.NewFile(uintptr(fd), resolved)
	actual, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err == nil && actual != resolved {
		err = changed(resolved)
	}
	if why := Judge(actual); err == nil && why != "" {
		err = refused(resolved, actual, why)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func changed(path string) error {
	return cove.Errorf(cove.Forbidden, "the host path %q was changed while it was being opened", path).
		WithHint("try again once nothing moves it any more")
}

// Own names a directory or file of Cove's own, by its place below a directory in which only Cove makes and moves
// things. Cove shows it to a sandbox by its own decision, so the rules for users' paths (Judge) do not apply to it.
type Own struct {
	Dir  string // absolute; symbolic links on the way to it are the machine's
	Name string // a path below Dir, without symbolic links and without ".."
}

// Below names the place at path, which has to lie below dir. Open refuses it otherwise.
func Below(dir, path string) Own {
	name, err := filepath.Rel(dir, path)
	if err != nil { // one of both is relative
		name = path
	}
	return Own{Dir: dir, Name: name}
}

// Open opens the place (O_PATH). No component below Dir may be a symbolic link, so the result lies below Dir even if a
// component is swapped meanwhile. Errors: NotFound, Forbidden, InvalidArgument.
func (o Own) Open() (*os.File, error) {
	path := filepath.Join(o.Dir, o.Name)
	dir, err := unix.Open(o.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unopened(path, err)
	}
	defer unix.Close(dir)
	const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	fd, err := unix.Openat2(dir, o.Name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: beneath})
	if err != nil {
		return nil, unopened(path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFDIR && kind != unix.S_IFREG {
		err = cove.Errorf(cove.Forbidden, "Cove's own %q is neither a directory nor a regular file", path)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func unopened(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return cove.Errorf(cove.NotFound, "Cove's own %q does not exist", path)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return cove.Errorf(cove.Forbidden, "Cove's own %q leads elsewhere, by a symbolic link or \"..\"", path).
			WithHint("put a real directory there, or choose another home with COVE_HOME")
	}
	return cove.Errorf(cove.InvalidArgument, "Cove's own %q cannot be opened: %w", path, err).
		WithHint("see to its permissions")
}
