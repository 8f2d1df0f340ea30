package layer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// Copy puts files into a layer above a tree, as COPY of a Dockerfile does.
type Copy struct {
	From   *Source
	Words  []string // sources
	Inline []Inline
	Dest   string // absolute; a slash at its end makes it a directory
	Owner  *Owner // of all that is copied or made; nil: root, or as the source has it
	Mode   *fs.FileMode
	Whole  bool // archives are files like others
}

// Inline is a file by its content.
type Inline struct{ Name, Data string }

// Owner is a user and a group by their numbers.
type Owner struct{ UID, GID int }

// Into makes the changes in an empty layer.
func (c Copy) Into(ctx context.Context, changes, tree string) error {
	into, err := open(changes, tree)
	if err != nil {
		return err
	}
	defer into.close()
	w := &copier{Copy: c, target: into}
	return failure(w.all(ctx), "copy")
}

// MakeDirectory makes a directory of root's in a layer, with those above it, and reports whether it was missing.
func MakeDirectory(changes, tree, name string) (missing bool, err error) {
	into, err := open(changes, tree)
	if err != nil {
		return false, err
	}
	defer into.close()
	real, err := into.resolve(name)
	if err != nil {
		return false, err
	}
	if info, err := into.look(real); err == nil {
		if !info.IsDir() {
			return false, cove.Errorf(cove.InvalidArgument, "%.200q is not a directory", name)
		}
		return false, nil
	}
	return true, failure(into.directory(real, Owner{}), "make "+name)
}

// target is a layer that is written, above a tree.
type target struct{ layer, tree *os.Root }

func open(changes, tree string) (target, error) {
	var t target
	var err error
	if t.layer, err = os.OpenRoot(changes); err != nil {
		return t, failure(err, "open a layer")
	}
	if t.tree, err = os.OpenRoot(tree); err != nil {
		t.layer.Close()
		return t, failure(err, "open a root filesystem")
	}
	return t, nil
}

func (t target) close() { t.layer.Close(); t.tree.Close() }

// look returns what is at a path without symbolic links in it.
func (t target) look(name string) (fs.FileInfo, error) {
	info, err := t.layer.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = t.tree.Lstat(name)
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = fs.ErrNotExist
	}
	return info, err
}

func (t target) resolve(name string) (string, error) {
	return resolve(name, t.look, func(name string) (string, error) {
		to, err := t.layer.Readlink(name)
		if err != nil {
			to, err = t.tree.Readlink(name)
		}
		return to, err
	})
}

// directory makes a directory in the layer with those above it: as the tree has them, where it does.
func (t target) directory(name string, owner Owner) error {
	if info, err := t.layer.Lstat(name); err == nil {
		if !info.IsDir() {
			return cove.Errorf(cove.InvalidArgument, "/%.200s is not a directory", name)
		}
		return nil
	}
	if err := t.directory(path.Dir(name), owner); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if info, err := t.tree.Lstat(name); err == nil {
		if !info.IsDir() {
			return cove.Errorf(cove.InvalidArgument, "/%.200s is not a directory", name)
		}
		st := info.Sys().(*syscall.Stat_t)
		mode, owner = info.Mode(), Owner{int(st.Uid), int(st.Gid)}
	}
	if err := t.layer.Mkdir(name, 0o700); err != nil {
		return err
	}
	return t.finish(name, mode, owner)
}

// finish gives what is new its owner and its mode.
func (t target) finish(name string, mode fs.FileMode, owner Owner) error {
	if err := t.layer.Lchown(name, owner.UID, owner.GID); err != nil || mode&fs.ModeSymlink != 0 {
		return err
	}
	return t.layer.Chmod(name, mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

type copier struct {
	Copy
	target
}

// all copies every source to its place.
func (c *copier) all(ctx context.Context) error {
	var found []string
	for _, word := range c.Words {
		names, err := c.From.find(word)
		if err != nil {
			return err
		}
		found = append(found, names...)
	}
	dest, err := c.resolve(c.Dest)
	if err != nil {
		return err
	}
	intoDir := strings.HasSuffix(c.Dest, "/") || dest == "."
	if info, err := c.look(dest); err == nil && info.IsDir() {
		intoDir = true
	}
	if len(found)+len(c.Inline) > 1 && !intoDir {
		return cove.Errorf(cove.InvalidArgument, "several files are copied to %.200q, which is no directory", c.Dest).
			WithHint("write a slash at its end")
	}
	place := func(name string) string {
		if intoDir {
			return path.Join(dest, path.Base(name))
		}
		return dest
	}
	for _, name := range found {
		real, err := c.From.resolve(name)
		if err != nil {
			return err
		}
		info, err := c.From.root.Lstat(real)
		if err != nil {
			return err
		}
		to := place(name)
		if info.IsDir() {
			to = dest
		}
		if err := c.entry(ctx, real, to, info, true); err != nil {
			return err
		}
	}
	for _, f := range c.Inline {
		if err := c.inline(place(f.Name), f.Data); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) owner(st *syscall.Stat_t) Owner {
	switch {
	case c.Owner != nil:
		return *c.Owner
	case st != nil && c.From.owners:
		return Owner{int(st.Uid), int(st.Gid)}
	}
	return Owner{}
}

// entry copies a file, a link, or a directory with what is in it. top says that a word of the Dockerfile names it: a
// directory that is there already stays as it is then.
func (c *copier) entry(ctx context.Context, from, to string, info fs.FileInfo, top bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	old, err := c.look(to)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if there && old.IsDir() != info.IsDir() {
		if old.IsDir() {
			return cove.Errorf(cove.InvalidArgument, "the file %.200q cannot take the place of a directory", from)
		}
		return cove.Errorf(cove.InvalidArgument, "the directory %.200q cannot take the place of what is no directory", from)
	}
	st := info.Sys().(*syscall.Stat_t)
	switch info.Mode().Type() {
	case fs.ModeDir:
		return c.dir(ctx, from, to, info, top && there)
	case fs.ModeSymlink, 0:
	default:
		return cove.Errorf(cove.InvalidArgument, "%.200q is neither a file nor a directory nor a symbolic link", from).
			WithHint("leave it out, by .dockerignore for one")
	}
	if err := c.directory(path.Dir(to), c.owner(nil)); err != nil {
		return err
	}
	if err := c.layer.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 {
		link, err := c.From.root.Readlink(from)
		if err != nil {
			return err
		}
		if err := c.layer.Symlink(link, to); err != nil {
			return err
		}
	} else {
		if err := c.content(from, to, info); err != nil {
			return err
		}
		if c.Mode != nil {
			mode = *c.Mode
		}
	}
	if err := c.finish(to, mode, c.owner(st)); err != nil {
		return err
	}
	return c.time(to, st.Mtim)
}

func (c *copier) time(name string, at syscall.Timespec) error {
	dir, err := c.layer.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	times := []unix.Timespec{unix.Timespec(at), unix.Timespec(at)}
	return unix.UtimesNanoAt(int(dir.Fd()), path.Base(name), times, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) content(from, to string, info fs.FileInfo) error {
	src, err := c.From.root.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if now, err := src.Stat(); err != nil || !os.SameFile(now, info) {
		return cove.Errorf(cove.Conflict, "%.200q changed while it was being read", from)
	}
	if !c.Whole {
		head := make([]byte, 512)
		n, _ := io.ReadFull(src, head)
		if packed(head[:n]) {
			return cove.Errorf(cove.Unsupported, "ADD of the archive %.200q is not supported", from).
				WithHint("copy it with COPY, and unpack it with RUN")
		}
		if _, err := src.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	dst, err := c.layer.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// packed reports the beginning of an archive, or of a compressed file.
func packed(head []byte) bool {
	for _, magic := range []string{"\x1f\x8b", "BZh", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return len(head) >= 262 && string(head[257:262]) == "ustar"
}

// dir copies a directory. One that is ignored comes into being for what is in it and is not.
func (c *copier) dir(ctx context.Context, from, to string, info fs.FileInfo, keep bool) error {
	skip, err := c.From.skips(from)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if !skip {
		if err := c.directory(to, c.owner(nil)); err != nil {
			return err
		}
		if !keep {
			mode := info.Mode()
			if c.Mode != nil {
				mode = *c.Mode
			}
			if err := c.finish(to, mode, c.owner(st)); err != nil {
				return err
			}
		}
	}
	names, err := c.From.list(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		below := path.Join(from, name)
		skip, err := c.From.skips(below)
		if err != nil {
			return err
		}
		info, err := c.From.root.Lstat(below)
		if err != nil {
			return err
		}
		if skip && (!info.IsDir() || !c.From.ignored.Exclusions()) {
			continue
		}
		if err := c.entry(ctx, below, path.Join(to, name), info, false); err != nil {
			return err
		}
	}
	if skip || keep {
		return nil
	}
	return c.time(to, st.Mtim)
}

func (c *copier) inline(to, data string) error {
	if err := c.directory(path.Dir(to), c.owner(nil)); err != nil {
		return err
	}
	if old, err := c.look(to); err == nil && old.IsDir() {
		return cove.Errorf(cove.InvalidArgument, "a heredoc cannot take the place of the directory /%.200s", to)
	}
	if err := c.layer.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	mode := fs.FileMode(0o644)
	if c.Mode != nil {
		mode = *c.Mode
	}
	if err := c.layer.WriteFile(to, []byte(data), 0o600); err != nil {
		return err
	}
	return c.finish(to, mode, c.owner(nil))
}
