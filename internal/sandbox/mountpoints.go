package sandbox

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// makeMountPoints makes the directories and files of a workspace and its home at which mounts are attached. An engine
// cannot: files there have the sandbox's owner by a mapping of ids, in which root inside has none. What the sandbox has
// written is not trusted: no link leads out of the two directories. Errors: InvalidArgument, StorageFull.
func makeMountPoints(ws workspace.Workspace, home string, mounts []cove.Mount) error {
	for _, m := range mounts {
		within := func(other cove.Mount) bool { return strings.HasPrefix(m.Target, other.Target+"/") }
		if slices.ContainsFunc(mounts, within) {
			continue // it lies in another mount
		}
		source, err := os.Stat(m.Source)
		if err != nil {
			continue // the engine says so, as for any mount
		}
		if name, below := strings.CutPrefix(m.Target, home+"/"); below {
			if err := makeMountPoint(ws.Home, name, source.IsDir()); err != nil {
				return err
			}
		}
		if name, below := strings.CutPrefix(m.Target, cove.Workspace+"/"); below && !ws.Bound {
			if err := makeMountPoint(ws.Directory, name, source.IsDir()); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeMountPoint makes the place name of a mount below a directory, unless it is there.
func makeMountPoint(dir, name string, directory bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, there := root.Lstat(name); there == nil {
		return nil // opening it could wait for ever, if the sandbox has made a pipe of it
	}
	if directory {
		err = root.MkdirAll(name, 0o755)
	} else if err = root.MkdirAll(path.Dir(name), 0o755); err == nil {
		var f *os.File
		if f, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return cove.Errorf(cove.StorageFull, "cannot make the place of a mount, %s: %w", name, err)
	case err != nil:
		return cove.Errorf(cove.InvalidArgument, "cannot make the place of a mount, %s: %w", name, err).
			WithHint("a file or a link of the sandbox may be in its way: remove it there, or choose another place")
	}
	return nil
}
