package hostpath

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Open opens a path that Check has returned, as a place (O_PATH). No symbolic link is followed any more, and what was
// opened is judged again by the name the kernel has for it, so a path that is changed in between gives an error and
// never another place. Errors: NotFound, Forbidden, InvalidArgument.
func Open(resolved string) (*os.File, error) {
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
	if err != nil {
		f.Close()
		return nil, err
	}
	if actual != resolved {
		f.Close()
		return nil, changed(resolved)
	}
	if why := Judge(actual); why != "" {
		f.Close()
		return nil, refused(resolved, actual, why)
	}
	return f, nil
}

func changed(path string) error {
	return cove.Errorf(cove.Forbidden, "the host path %q was changed while it was being opened", path).
		WithHint("try again once nothing moves it any more")
}
