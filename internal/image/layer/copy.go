package layer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/moby/patternmatcher"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Copy puts files into a layer above a root filesystem, as COPY of a Dockerfile does.
type Copy struct {
	From   *Source
	Words  []string // sources
	Inline []Inline
	Dest   string // absolute; a slash at its end makes it a directory
	Owner  *Owner // of all that is copied or made; nil: root, or as the source has it
	Mode   *Chmod // nil: as the source has it
	// Exclude are patterns as of a .dockerignore, for what is in a source, or for the name of one that is a file.
	Exclude []string
	Parents bool   // a source keeps its directories, from "/./" on where it has that
	Itself  bool   // a directory that a word names keeps its owner and mode
	Whole   bool   // archives are files like others
	Plain   bool   // no mode has more than the permissions of owner, group and others
	Room    string // directory in which others are unpacked, and on whose disk builds leave some; empty: of no build
}

// Inline is a file by its content.
type Inline struct{ Name, Data string }

// Owner is a user and a group by their numbers.
type Owner struct{ UID, GID int }

// Into makes the changes in an empty layer.
func (c Copy) Into(ctx context.Context, changes string, below rootfs.Stack) error {
	into, err := open(changes, below)
	if err != nil {
		return err
	}
	defer into.close()
	limits := unpack.DefaultLimits()
	most := Most{limits.Bytes, limits.Entries}
	w := &copier{Copy: c, target: into, links: map[[2]uint64]string{}, meter: &meter{most, most}}
	return failure(w.all(ctx), "copy")
}

// MakeDirectory makes a directory of root's in a layer, with those above it, and reports whether it was missing.
func MakeDirectory(changes string, below rootfs.Stack, name string) (missing bool, err error) {
	into, err := open(changes, below)
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

// target is a layer that is written, above a root filesystem.
type target struct {
	layer *os.Root
	below *rootfs.View
}

func open(changes string, below rootfs.Stack) (target, error) {
	var t target
	var err error
	if t.layer, err = os.OpenRoot(changes); err != nil {
		return t, failure(err, "open a layer")
	}
	if t.below, err = below.Open(); err != nil {
		t.layer.Close()
		return t, failure(err, "open a root filesystem")
	}
	return t, nil
}

func (t target) close() { t.layer.Close(); t.below.Close() }

// look returns what is at a path without symbolic links in it.
func (t target) look(name string) (fs.FileInfo, error) {
	info, err := t.layer.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = t.below.Lstat(name)
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = fs.ErrNotExist
	}
	return info, err
}

func (t target) resolve(name string) (string, error) {
	return rootfs.Resolve(name, t.look, func(name string) (string, error) {
		to, err := t.layer.Readlink(name)
		if err != nil {
			to, err = t.below.Readlink(name)
		}
		return to, err
	})
}

// directory makes a directory in the layer with those above it: as they are below, where they are.
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
	if info, err := t.below.Lstat(name); err == nil {
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
	*meter
	links    map[[2]uint64]string // by inodes of a tree, of which names were copied
	excluded *patternmatcher.PatternMatcher
	top      string // the source that is being copied
}

// all copies every source to its place.
func (c *copier) all(ctx context.Context) error {
	var found []string
	kept := map[string]int{} // of how many directories a name does not keep
	for _, word := range c.Words {
		if c.Parents && strings.Contains(word, "**") {
			return cove.Errorf(cove.Unsupported, "%.200q with --parents is not supported", word).
				WithHint("write a pattern for each depth")
		}
		names, err := c.From.find(word)
		if err != nil {
			return err
		}
		for _, name := range names {
			kept[name] = pivot(word)
		}
		found = append(found, names...)
	}
	var err error
	if c.excluded, err = patternmatcher.New(c.Exclude); err != nil {
		return cove.Errorf(cove.InvalidArgument, "--exclude: %w", err)
	}
	dest, err := c.resolve(c.Dest)
	if err != nil {
		return err
	}
	intoDir := strings.HasSuffix(c.Dest, "/") || dest == "." || c.Parents
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
		if !c.Whole && info.Mode().IsRegular() {
			done, err := c.unpacked(ctx, real, dest, info)
			if err != nil {
				return err
			}
			if done {
				continue
			}
		}
		to := place(name)
		if info.IsDir() {
			to = dest
		} else if skip, err := c.excludes(path.Base(name)); err != nil || skip {
			if err != nil {
				return err
			}
			continue
		}
		if c.Parents {
			if to, err = c.below(dest, name, kept[name]); err != nil {
				return err
			}
		}
		c.top = real
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

// pivot returns how many directories of a word are before its "/./".
func pivot(word string) int {
	for word = strings.TrimPrefix(word, "/"); strings.HasPrefix(word, "./"); {
		word = word[len("./"):]
	}
	before, _, ok := strings.Cut("/"+word, "/./")
	if before = strings.Trim(path.Clean("/"+before), "/"); !ok || before == "" {
		return 0
	}
	return strings.Count(before, "/") + 1
}

// below makes the directories of a source in the destination, without the first ones, and returns the place of what is
// copied.
func (c *copier) below(dest, name string, without int) (string, error) {
	parts := strings.Split(path.Clean(name), "/")
	from := path.Join(parts[:min(without, len(parts)-1)]...)
	for _, part := range parts[min(without, len(parts)-1) : len(parts)-1] {
		from, dest = path.Join(from, part), path.Join(dest, part)
		real, err := c.From.resolve(from)
		if err != nil {
			return "", err
		}
		info, err := c.From.root.Lstat(real)
		if err != nil {
			return "", err
		}
		if _, err := c.look(dest); err == nil {
			continue
		}
		if err := c.directory(dest, c.owner(nil)); err != nil {
			return "", err
		}
		if err := c.finish(dest, info.Mode(), c.owner(info.Sys().(*syscall.Stat_t))); err != nil {
			return "", err
		}
	}
	return path.Join(dest, parts[len(parts)-1]), nil
}

// excludes reports whether a name is excluded: one in the source, or of it.
func (c *copier) excludes(name string) (bool, error) {
	if len(c.Exclude) == 0 {
		return false, nil
	}
	skip, err := c.excluded.MatchesOrParentMatches(name)
	if err != nil {
		return false, cove.Errorf(cove.InvalidArgument, "--exclude: %w", err)
	}
	return skip, nil
}

// within returns the path of a place in the source that is being copied.
func (c *copier) within(name string) string {
	if c.top == "." {
		return name
	}
	return strings.TrimPrefix(name, c.top+"/")
}

func (c *copier) finish(name string, mode fs.FileMode, owner Owner) error {
	if c.Plain {
		mode &= fs.ModePerm | fs.ModeSymlink
	}
	return c.target.finish(name, mode, owner)
}

func (c *copier) owner(st *syscall.Stat_t) Owner {
	switch {
	case c.Owner != nil:
		return *c.Owner
	case st != nil && c.From.in != nil:
		return Owner{int(st.Uid), int(st.Gid)}
	}
	return Owner{}
}

// entry copies a file, a link, or a directory with what is in it. top says that a word of the Dockerfile names it: of a
// directory what is in it is copied then.
func (c *copier) entry(ctx context.Context, from, to string, info fs.FileInfo, top bool) error {
	st := info.Sys().(*syscall.Stat_t)
	id := [2]uint64{st.Dev, st.Ino}
	first, again := c.links[id]
	if err := errors.Join(ctx.Err(), c.count(st.Mode, st.Size, again), Spare(c.Room)); err != nil {
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
	switch info.Mode().Type() {
	case fs.ModeDir:
		return c.dir(ctx, from, to, info, top && (there || !c.Itself && !c.Parents))
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
	if again {
		return c.layer.Link(first, to)
	}
	if c.From.in != nil {
		c.links[id] = to
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
		if err := c.content(ctx, from, to, info); err != nil {
			return err
		}
		if c.Mode != nil {
			mode = c.Mode.of(mode)
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

// read opens a file of the source, which info was of.
func (c *copier) read(name string, info fs.FileInfo) (*os.File, error) {
	f, err := c.From.root.Open(name)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		f.Close()
		return nil, cove.Errorf(cove.Conflict, "%.200q changed while it was being read", name)
	}
	return f, nil
}

func (c *copier) content(ctx context.Context, from, to string, info fs.FileInfo) error {
	src, err := c.read(from, info)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := c.layer.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pour(ctx, src, dst, c.Room), dst.Close())
}

// unpacked copies what is in an archive into the destination, a directory then, with the owners and modes that the
// archive states. It reports whether the file is one.
func (c *copier) unpacked(ctx context.Context, from, dest string, info fs.FileInfo) (done bool, err error) {
	f, err := c.read(from, info)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if is, err := unpack.IsArchive(f); err != nil || !is {
		return false, err
	}
	dir, err := os.MkdirTemp(c.Room, "archive-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unpack.RemoveAll(dir)) }()
	if err := unpackTo(ctx, dir, f); err != nil {
		return false, err
	}
	source, err := OpenStack(rootfs.Stack{dir})
	if err != nil {
		return false, err
	}
	defer source.Close()
	top, err := source.root.Lstat(".")
	if err == nil {
		err = c.directory(dest, c.owner(nil))
	}
	if err != nil {
		return false, err
	}
	all := &copier{Copy: Copy{From: source, Whole: true, Room: c.Room}, target: c.target, meter: c.meter,
		links: map[[2]uint64]string{}}
	return true, all.entry(ctx, ".", dest, top, true)
}

func unpackTo(ctx context.Context, dir string, archive io.Reader) error {
	limits := unpack.DefaultLimits()
	limits.Entries = min(limits.Entries, Left(dir).Files)
	t, err := unpack.New(dir, limits)
	if err != nil {
		return err
	}
	defer t.Close()
	t.Room = func(int64, int64) error { return Spare(dir) }
	if _, err := t.Apply(ctx, archive, unpack.Archive); err != nil {
		return err
	}
	_, err = t.Finish()
	return err
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
				mode = c.Mode.of(mode)
			}
			if err := c.finish(to, mode, c.owner(st)); err != nil {
				return err
			}
		}
	}
	names, err := c.From.root.Names(from, 0)
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
		if skip, err = c.excludes(c.within(below)); err != nil {
			return err
		}
		if skip && (!info.IsDir() || !c.excluded.Exclusions()) {
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
		mode = c.Mode.of(mode)
	}
	if err := c.layer.WriteFile(to, []byte(data), 0o600); err != nil {
		return err
	}
	return c.finish(to, mode, c.owner(nil))
}
