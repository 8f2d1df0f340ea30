package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// AccountOf is Account with the files of an image. A file that cannot be read has no entries. Errors: those of
// Account, ImageMissing.
func AccountOf(root Stack, text string) (cove.User, error) {
	v, err := root.Open()
	if err != nil {
		return cove.User{}, cove.Errorf(cove.ImageMissing, "the root filesystem cannot be opened: %w", err)
	}
	defer v.Close()
	passwd, _ := v.readFile("etc/passwd", maxAccounts)
	group, _ := v.readFile("etc/group", maxAccounts)
	return Account(text, passwd, group)
}

// Names returns the files of /etc that give the user of programs and its group names, where an image has none
// for their ids: many programs end where their user has no name. Files that cannot be read, and large ones, stay as
// they are.
func Names(root Stack, u cove.User) []File {
	v, err := root.Open()
	if err != nil {
		return nil // what mounts it says so
	}
	defer v.Close()
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
		has, err := v.readFile(f.file, maxNamed)
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

// HasDir reports whether a root filesystem has a directory at an absolute path of its own.
func HasDir(root Stack, place string) bool {
	v, err := root.Open()
	if err != nil {
		return false
	}
	defer v.Close()
	real, err := v.Resolve(place)
	if err != nil {
		return false
	}
	info, err := v.Lstat(real)
	return err == nil && info.IsDir()
}

// readFile reads a file of at most most bytes, by any path. Errors: fs.ErrNotExist, EINVAL for no such file.
func (v *View) readFile(name string, most int64) ([]byte, error) {
	real, err := v.Resolve(name)
	if err != nil {
		return nil, err
	}
	f, err := v.Open(real)
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
