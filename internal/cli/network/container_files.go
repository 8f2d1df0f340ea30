package network

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// otherRoot reports whether a process sees other files than this one.
func otherRoot(pid int) (bool, error) {
	ours, err := os.Stat("/proc/self/root/")
	if err != nil {
		return false, err
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root/", pid))
	if err != nil {
		return false, cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, ui.Cause(err)).
			WithHint("run it as root")
	}
	return !os.SameFile(ours, theirs), nil
}

// putFiles puts a client's files into a directory of a process's own root,
// where they are not there already. Nothing there can lead elsewhere.
func putFiles(pid int, from, to string) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return cove.Errorf(cove.Forbidden, "cannot look at the files of process %d: %w", pid, ui.Cause(err)).
			WithHint("run it as root")
	}
	defer root.Close()
	dir := strings.TrimPrefix(path.Clean("/"+to), "/")
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(path.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if err := putFile(root, path.Join(dir, e.Name()), data); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot put %s into the container: %w", path.Join(to, e.Name()), ui.Cause(err)).
				WithHint("attach it when the container is started: --volume %s:%s:ro", from, to)
		}
	}
	return nil
}

func putFile(root *os.Root, name string, data []byte) error {
	if there, err := readRegular(root, name, len(data)); err == nil && string(there) == string(data) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

// readRegular reads a file of at most size bytes. Programs in the container may have made it, so it is not trusted.
func readRegular(root *os.Root, name string, size int) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	return io.ReadAll(io.LimitReader(f, int64(size)+1))
}
