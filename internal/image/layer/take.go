package layer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Take copies the changes of an overlay, in which nothing runs meanwhile, into the empty directory of a layer: with
// their owners, modes, times, hard links and extended attributes, without sockets. Errors: TooLarge, StorageFull,
// Canceled, InvalidArgument (a name that archives of layers cannot have). moves removes each file as soon as it is
// copied, so that what the kernel has not written yet need not be written.
func Take(ctx context.Context, from, changes string, most Most, moves bool) error {
	t := taking{meter: meter{most, most}, moves: moves, first: map[[2]uint64]string{}}
	err := t.directory(ctx, from, changes, ".")
	if ctx.Err() != nil {
		return cove.Errorf(cove.Canceled, "the copy of the changes was ended: %w", ctx.Err())
	}
	return failure(err, "copy the changes of a sandbox")
}

type taking struct {
	meter
	moves bool
	first map[[2]uint64]string // of inodes with several names, the first copy
}

func (t *taking) directory(ctx context.Context, from, to, name string) error {
	var st unix.Stat_t // with the time before anything is removed
	entries, err := os.ReadDir(from)
	if err = errors.Join(err, unix.Lstat(from, &st)); err != nil {
		return err
	}
	for _, e := range entries {
		below := path.Join(name, e.Name())
		if strings.HasPrefix(e.Name(), ".wh.") {
			return cove.Errorf(cove.InvalidArgument, "the file %.200q has a name that layers of images use for what was removed",
				below).WithHint("rename or remove it in the sandbox")
		}
		err := t.entry(ctx, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), below)
		if err == nil && t.moves && !e.IsDir() {
			err = os.Remove(filepath.Join(from, e.Name()))
		}
		if err != nil {
			return err
		}
	}
	if rootfs.Opaque(from) {
		if err := rootfs.MakeOpaque(to); err != nil {
			return err
		}
	}
	if err := attributes(from, to); err != nil {
		return err
	}
	return describe(to, st)
}

func (t *taking) entry(ctx context.Context, from, to, name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	id := [2]uint64{st.Dev, st.Ino}
	first, again := t.first[id]
	err := errors.Join(ctx.Err(), t.count(st.Mode, st.Size, again), Spare(filepath.Dir(to)))
	if err == nil && again {
		return os.Link(first, to)
	}
	if err != nil {
		return err
	}
	switch kind(st) {
	case unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); err == nil {
			err = t.directory(ctx, from, to, name)
		}
		return err
	case unix.S_IFREG:
		err = copyFile(ctx, from, to)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case unix.S_IFIFO:
		err = unix.Mkfifo(to, 0o600)
	case unix.S_IFCHR:
		if !whiteout(st) {
			return nil
		}
		return unix.Mknod(to, unix.S_IFCHR, 0)
	default: // a socket means nothing without its program
		return nil
	}
	if err != nil {
		return err
	}
	if st.Nlink > 1 {
		t.first[id] = to
	}
	return resemble(from, to, st)
}

// resemble gives a copy that is no directory the properties of the original: the owner first, whose change takes
// capabilities and special modes away.
func resemble(from, to string, st unix.Stat_t) error {
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if kind(st) != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return &fs.PathError{Op: "chmod", Path: to, Err: err}
		}
	}
	if err := attributes(from, to); err != nil {
		return err
	}
	return setTime(to, st.Mtim)
}

// meter counts what is copied.
type meter struct{ left, most Most }

// count refuses more than the most, before anything is copied. again says that it is one more name of a file.
func (m *meter) count(mode uint32, size int64, again bool) error {
	m.left.Files--
	if mode&unix.S_IFMT == unix.S_IFREG && !again {
		m.left.Bytes -= size
	}
	if m.left.Files < 0 || m.left.Bytes < 0 {
		return cove.Errorf(cove.TooLarge, "the changes have more than %d MiB or %d files", m.most.Bytes>>20, m.most.Files).
			WithHint("remove what the image does not need, such as caches of package managers")
	}
	return nil
}

// chunk is how much is copied before the room on the disk is looked at again.
const chunk = 16 << 20

func copyFile(ctx context.Context, from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pour(ctx, in, out, filepath.Dir(to)), out.Close())
}

// pour copies the content of a file, without its large holes, while the disk of a directory has room.
func pour(ctx context.Context, in, out *os.File, room string) error {
	end := int64(0) // of what is copied
	at, err := in.Seek(0, unix.SEEK_DATA)
	for ; err == nil; at, err = in.Seek(at+chunk, unix.SEEK_DATA) {
		end, err = out.Seek(at, io.SeekStart)
		if err = errors.Join(err, ctx.Err(), Spare(room)); err == nil {
			var n int64
			n, err = io.CopyN(out, in, chunk)
			end += n
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if errors.Is(err, unix.ENXIO) { // no more data
		at, err = in.Seek(0, io.SeekEnd)
	}
	if err != nil || at == end {
		return err
	}
	return out.Truncate(at)
}

// capability is the attribute with the capabilities of a program.
const capability = "security.capability"

// kept reports whether an attribute belongs to the file itself, and not to the overlay or to this machine.
func kept(name string) bool {
	return name == capability || strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.")
}

// attributes gives a file the extended attributes of another.
func attributes(from, to string) error {
	all, err := attributesOf(from)
	for name, value := range all {
		if e := unix.Lsetxattr(to, name, []byte(value), 0); e != nil {
			err = errors.Join(err, &fs.PathError{Op: "setxattr " + name, Path: to, Err: e})
		}
	}
	return err
}

// attributesOf returns the extended attributes of a file that belong to it.
func attributesOf(place string) (map[string]string, error) {
	n, err := unix.Llistxattr(place, nil)
	if err == unix.ENOTSUP || n == 0 && err == nil {
		return nil, nil
	}
	names := make([]byte, 64<<10) // the most that the kernel has of one file
	if err == nil {
		n, err = unix.Llistxattr(place, names)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "listxattr", Path: place, Err: err}
	}
	var all map[string]string
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !kept(name) {
			continue
		}
		n, err := unix.Lgetxattr(place, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "getxattr " + name, Path: place, Err: err}
		}
		if name == capability && n != capabilityBytes {
			continue // it counts in another user namespace alone
		}
		if all == nil {
			all = map[string]string{}
		}
		all[name] = string(value[:n])
	}
	return all, nil
}

// capabilityBytes is the size of capabilities that count wherever their owner is root (capabilities(7), version 2).
const capabilityBytes = 20
