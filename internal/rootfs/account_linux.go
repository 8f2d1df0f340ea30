package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// AccountOf is Account with the files of an image's tree. A file that cannot be read has no entries. Errors: those of
// Account, ImageMissing.
func AccountOf(tree, text string) (cove.User, error) {
	passwd, err := entries(tree, "etc/passwd")
	if err != nil {
		return cove.User{}, err
	}
	group, err := entries(tree, "etc/group")
	if err != nil {
		return cove.User{}, err
	}
	return Account(text, passwd, group)
}

// Names returns the files of /etc that give the user of programs and its group names, where an image's tree has none
// for their ids: many programs end where their user has no name. Files that cannot be read, and large ones, stay as
// they are.
func Names(tree string, u cove.User) []File {
	name := cmp.Or(u.Name, "cove")
	var all []File
	for _, f := range []struct {
		file, root, line string
		fields, id       int
	}{
		{"/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n",
			fmt.Sprintf("%s:x:%d:%d::%s:%s", name, u.UID, u.GID, u.Home, cmp.Or(u.Shell, "/bin/sh")), 7, u.UID},
		{"/etc/group", "root:x:0:\n", fmt.Sprintf("%s:x:%d:", name, u.GID), 4, u.GID},
	} {
		has, err := readBeneath(tree, f.file, maxNamed)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			continue
		}
		if missing {
			has = []byte(f.root)
		}
		if data, changed := named(has, f.fields, f.id, f.line); changed || missing {
			all = append(all, File{Name: f.file, Mode: 0o644, Data: data})
		}
	}
	return all
}

// HasDir reports whether a tree has a directory at an absolute path of its own.
func HasDir(tree, place string) bool {
	f, err := openBeneath(tree, place, unix.O_DIRECTORY|unix.O_PATH)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// openBeneath opens a file of a tree, whose symbolic links do not lead out of it.
func openBeneath(tree, name string, flags uint64) (*os.File, error) {
	root, err := os.OpenFile(tree, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, cove.Errorf(cove.ImageMissing, "the root filesystem cannot be opened: %w", err)
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readBeneath reads a file of a tree, of at most so many bytes. Errors: ImageMissing for the tree, fs.ErrNotExist,
// others for what is no such file.
func readBeneath(tree, name string, most int64) ([]byte, error) {
	f, err := openBeneath(tree, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EINVAL}
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// entries reads a file of accounts, which has none where it cannot be read. Errors: ImageMissing.
func entries(tree, name string) ([]byte, error) {
	data, err := readBeneath(tree, name, maxAccounts)
	if cove.ErrorCode(err) == cove.ImageMissing {
		return nil, err
	}
	return data, nil
}
