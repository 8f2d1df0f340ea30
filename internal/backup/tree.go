//go:build linux

package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Tree is a file or a directory of a home. In the backup it has the same name.
type Tree struct {
	Home, Name string
	Except     []string // names of the home, with all below them
}

// Keys of the records of a part of a file.
const (
	partOf = "COVE.file"
	partAt = "COVE.offset"
	length = "COVE.size"
	xattr  = "SCHILY.xattr."
)

// packer writes trees to a tar.
type packer struct {
	*tar.Writer
	links map[[2]uint64]string // of files with several names, by device and inode: the first of them
}

// pack writes a tree to a tar, which goes on after it. What is removed meanwhile is left out.
func pack(t Tree, out io.Writer) error {
	p := packer{tar.NewWriter(out), map[[2]uint64]string{}}
	err := filepath.WalkDir(filepath.Join(t.Home, t.Name), func(path string, d fs.DirEntry, err error) error {
		name, e := filepath.Rel(t.Home, path)
		switch {
		case e != nil:
			return e
		case slices.Contains(t.Except, name) && d != nil && d.IsDir():
			return fs.SkipDir
		case slices.Contains(t.Except, name), errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		if err = p.add(path, name); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err == nil {
		err = p.Flush()
	}
	return err
}

func (p packer) add(path, name string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket != 0 {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = name, "", "", tar.FormatPAX
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if h.PAXRecords, err = attributes(path); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return p.WriteHeader(h)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	st := info.Sys().(*syscall.Stat_t)
	if st.Nlink > 1 {
		id := [2]uint64{uint64(st.Dev), st.Ino}
		if h.Linkname = p.links[id]; h.Linkname != "" {
			h.Typeflag, h.Size = tar.TypeLink, 0
			return p.WriteHeader(h)
		}
		p.links[id] = name
	}
	if st.Blocks*512 < st.Size {
		return p.parts(h, file)
	}
	return p.content(h, io.NewSectionReader(file, 0, h.Size))
}

// content writes a file. What another process has cut off meanwhile is zeros.
func (p packer) content(h *tar.Header, from io.Reader) error {
	if err := p.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.CopyN(p, io.MultiReader(from, zeros{}), h.Size)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// parts writes the extents of a file with holes; at least one, which may be empty.
func (p packer) parts(h *tar.Header, file *os.File) error {
	whole, name := h.Size, h.Name
	for begin, end := int64(0), int64(0); ; {
		var err error
		if begin, err = unix.Seek(int(file.Fd()), end, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			if end > 0 {
				return nil
			}
			begin, end, err = 0, whole, nil // nothing but a hole
			h.Size = 0
		} else if err == nil {
			end, err = unix.Seek(int(file.Fd()), begin, unix.SEEK_HOLE)
			h.Size = end - begin
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		h.Name = fmt.Sprintf("%s.part-%015d", name, begin)
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[partOf], h.PAXRecords[partAt] = name, strconv.FormatInt(begin, 10)
		h.PAXRecords[length] = strconv.FormatInt(whole, 10)
		if err := p.content(h, io.NewSectionReader(file, begin, h.Size)); err != nil || end >= whole {
			return err
		}
	}
}

// attributes returns the extended attributes of a file, as records.
func attributes(path string) (map[string]string, error) {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "llistxattr", Path: path, Err: err}
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "security.selinux" {
			continue // of the machine's policy
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			continue // not for this user
		}
		all[xattr+name] = string(value[:n])
	}
	return all, nil
}

// unpack writes the entries of a backup below a directory, and judges it.
func unpack(ctx context.Context, in io.Reader, dir string, check func(About) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{Root: root}
	err = scan(in, check, func(h *tar.Header, from io.Reader) error {
		if ctx.Err() != nil {
			return cove.Errorf(cove.Canceled, "it was ended: %w", ctx.Err())
		}
		return u.add(h, from)
	})
	for _, h := range slices.Backward(u.later) { // by their modes and times nothing more is written
		err = errors.Join(err, u.dress(h.Name, h))
	}
	return err
}

// unpacker writes files below a directory, and nothing outside.
type unpacker struct {
	*os.Root
	later []*tar.Header // of directories, and of files in parts, for dress
}

func (u *unpacker) add(h *tar.Header, from io.Reader) error {
	name := filepath.Clean(h.Name)
	if file := h.PAXRecords[partOf]; file != "" {
		name = filepath.Clean(file)
	}
	if err := u.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if _, err := u.Lstat(name); err == nil { // it was read again
			if err := u.RemoveAll(name); err != nil {
				return err
			}
			u.later = slices.DeleteFunc(u.later, func(h *tar.Header) bool {
				return h.Name == name || strings.HasPrefix(h.Name, name+"/")
			})
		}
		h.Name = name
		u.later = append(u.later, h)
		return u.Mkdir(name, 0o700)
	case tar.TypeLink:
		return u.Link(filepath.Clean(h.Linkname), name)
	case tar.TypeSymlink:
		if err := u.Symlink(h.Linkname, name); err != nil || os.Geteuid() != 0 {
			return err
		}
		return u.Lchown(name, h.Uid, h.Gid)
	case tar.TypeReg:
		if err := u.write(name, h, from); err != nil {
			return err
		}
		if h.PAXRecords[partOf] != "" { // others follow
			h.Name = name
			u.later = append(u.later, h)
			return nil
		}
	default:
		if err := u.node(name, h); err != nil {
			return err
		}
	}
	return u.dress(name, h)
}

// write writes a file, or a part of one.
func (u *unpacker) write(name string, h *tar.Header, from io.Reader) error {
	at, size := int64(0), h.Size
	if text := h.PAXRecords[length]; text != "" {
		if _, err := fmt.Sscan(h.PAXRecords[partAt]+" "+text, &at, &size); err != nil {
			return err
		}
	}
	file, err := u.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return err
	}
	if _, err = file.Seek(at, io.SeekStart); err == nil {
		_, err = io.Copy(file, from)
	}
	return errors.Join(err, file.Close())
}

// node makes what is no file: a device, as overlayfs has for what was removed, or a pipe.
func (u *unpacker) node(name string, h *tar.Header) error {
	dir, err := u.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}
	err = unix.Mknodat(int(dir.Fd()), filepath.Base(name), kind[h.Typeflag]|0o600,
		int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	return os.NewSyscallError("mknodat", err)
}

// dress gives a file its owner, mode, attributes and time.
func (u *unpacker) dress(name string, h *tar.Header) error {
	if os.Geteuid() == 0 {
		if err := u.Lchown(name, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	if err := u.attributes(name, h); err != nil {
		return err
	}
	if err := u.Chmod(name, h.FileInfo().Mode()); err != nil {
		return err
	}
	return u.Chtimes(name, h.ModTime, h.ModTime)
}

func (u *unpacker) attributes(name string, h *tar.Header) error {
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
		return nil
	}
	var file *os.File
	for key, value := range h.PAXRecords {
		attribute, is := strings.CutPrefix(key, xattr)
		if !is {
			continue
		}
		if file == nil {
			var err error
			if file, err = u.Open(name); err != nil {
				return err
			}
			defer file.Close()
		}
		if err := unix.Fsetxattr(int(file.Fd()), attribute, []byte(value), 0); err != nil {
			return &fs.PathError{Op: "fsetxattr " + attribute, Path: name, Err: err}
		}
	}
	return nil
}
