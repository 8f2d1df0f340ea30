// Package files does the work on the files of the image store that have owners of their own: in this process where it
// is root or has no subordinate ids, and else in a process apart.
//
// # The process apart
//
// An ordinary user cannot give files to others, but root of a user namespace can, within the ids that it maps. So this
// program starts itself again in a namespace with the map of root inside (local.IDs.Apart): the user is 0 there, and
// the subordinate ids are 1 to 65535, as in a sandbox with root inside. It has five capabilities, none of them over
// anything but the user's own files and those of subordinate ids. The same functions run in either process, with the
// owners as images have them.
//
// The process apart serves one program, which started it, at a socket that nothing else has: one connection for each
// operation. It ends with that program, however that ends, and when it has been idle for a while. Locks and records of
// the store stay with the program.
package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Files does work on files. nil does it in this process.
type Files struct{ apart *apart }

// remote returns the process apart; nil: there is none.
func (f *Files) remote() *apart {
	if f == nil {
		return nil
	}
	return f.apart
}

// Owners reports whether files can have owners of their own.
func (f *Files) Owners() bool { return os.Geteuid() == 0 || f.Apart() }

// Apart reports whether a process apart does the work.
func (f *Files) Apart() bool { return f.remote() != nil }

// Self is the owner of the files of this process, as the process that does the work has it.
func (f *Files) Self() layer.Owner {
	if f.Apart() {
		return layer.Owner{}
	}
	return layer.Owner{UID: os.Geteuid(), GID: os.Getegid()}
}

type none struct{}

// pair are two directories: from which something comes, and where it goes.
type pair struct{ From, To string }

// making is a stack, and the tree that is made of it.
type making struct {
	From rootfs.Stack
	To   string
}

var clone = operation[making, none]{"clone", func(_ context.Context, a making) (none, error) {
	return none{}, layer.Clone(a.From, a.To)
}}

// Clone is layer.Clone.
func (f *Files) Clone(ctx context.Context, from rootfs.Stack, to string) error {
	_, err := call(ctx, f, clone, making{from, to})
	return err
}

var flatten = operation[making, none]{"flatten", func(ctx context.Context, a making) (none, error) {
	return none{}, layer.Flatten(ctx, a.From, a.To)
}}

// Flatten is layer.Flatten.
func (f *Files) Flatten(ctx context.Context, from rootfs.Stack, to string) error {
	_, err := call(ctx, f, flatten, making{from, to})
	return err
}

var link = operation[pair, none]{"link", func(_ context.Context, a pair) (none, error) {
	return none{}, layer.Link(a.From, a.To)
}}

// Link is layer.Link.
func (f *Files) Link(ctx context.Context, changes, to string) error {
	_, err := call(ctx, f, link, pair{changes, to})
	return err
}

type taking struct {
	pair
	Most layer.Most
}

var take = operation[taking, none]{"take", func(ctx context.Context, a taking) (none, error) {
	return none{}, layer.Take(ctx, a.From, a.To, a.Most, false)
}}

// Take is layer.Take.
func (f *Files) Take(ctx context.Context, from, changes string, most layer.Most) error {
	_, err := call(ctx, f, take, taking{pair{from, changes}, most})
	return err
}

type discarding struct {
	Changes       string
	Below         rootfs.Stack
	Files, Places []string
}

var discard = operation[discarding, none]{"discard", func(_ context.Context, a discarding) (none, error) {
	return none{}, layer.Discard(a.Changes, a.Below, a.Files, a.Places)
}}

// Discard is layer.Discard.
func (f *Files) Discard(ctx context.Context, changes string, below rootfs.Stack, files, places []string) error {
	_, err := call(ctx, f, discard, discarding{changes, below, files, places})
	return err
}

var seal = operation[string, none]{"seal", func(_ context.Context, dir string) (none, error) {
	return none{}, engine.SealLayer(dir)
}}

// Seal is engine.SealLayer.
func (f *Files) Seal(ctx context.Context, dir string) error {
	_, err := call(ctx, f, seal, dir)
	return err
}

type clamping struct {
	Changes string
	Latest  time.Time
}

var clamp = operation[clamping, none]{"clamp", func(_ context.Context, a clamping) (none, error) {
	return none{}, layer.Clamp(a.Changes, a.Latest)
}}

// Clamp is layer.Clamp.
func (f *Files) Clamp(ctx context.Context, changes string, latest time.Time) error {
	_, err := call(ctx, f, clamp, clamping{changes, latest})
	return err
}

var diffID = operation[string, string]{"diff id", layer.DiffID}

// DiffID is layer.DiffID.
func (f *Files) DiffID(ctx context.Context, changes string) (string, error) {
	return call(ctx, f, diffID, changes)
}

var content = operation[string, string]{"content", layer.Content}

// Content is layer.Content.
func (f *Files) Content(ctx context.Context, changes string) (string, error) {
	return call(ctx, f, content, changes)
}

// place is a path in a stack, above which there may be a layer.
type place struct {
	Layer string
	In    rootfs.Stack
	Name  string
}

var makeDirectory = operation[place, bool]{"make directory", func(_ context.Context, a place) (bool, error) {
	return layer.MakeDirectory(a.Layer, a.In, a.Name)
}}

// MakeDirectory is layer.MakeDirectory.
func (f *Files) MakeDirectory(ctx context.Context, changes string, below rootfs.Stack, name string) (missing bool,
	err error) {
	return call(ctx, f, makeDirectory, place{changes, below, name})
}

var find = operation[place, layer.Found]{"find", func(_ context.Context, a place) (layer.Found, error) {
	return layer.Find(a.In, a.Name), nil
}}

// Find is layer.Find.
func (f *Files) Find(ctx context.Context, in rootfs.Stack, name string) (layer.Found, error) {
	return call(ctx, f, find, place{In: in, Name: name})
}

var resolve = operation[place, string]{"resolve", func(_ context.Context, a place) (string, error) {
	return layer.Resolve(a.In, a.Name)
}}

// Resolve is layer.Resolve.
func (f *Files) Resolve(ctx context.Context, in rootfs.Stack, name string) (string, error) {
	return call(ctx, f, resolve, place{In: in, Name: name})
}

// Size is how large a tree is.
type Size struct{ Bytes, Files int64 }

var measure = operation[string, Size]{"measure", func(_ context.Context, dir string) (s Size, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s.Files++; info.Mode().IsRegular() {
			s.Bytes += info.Size()
		}
		return nil
	})
	return s, err
}}

// Measure returns the bytes of the files of a tree or layer, and their number: all entries except directories.
func (f *Files) Measure(ctx context.Context, dir string) (Size, error) {
	return call(ctx, f, measure, dir)
}

var whole = operation[string, Size]{"whole", func(ctx context.Context, dir string) (s Size, err error) {
	s.Bytes, s.Files, err = hostdisk.Tree(ctx, dir)
	return s, err
}}

// Over returns the work on files with rights over all files that sandboxes of a user with some ids make, whatever their
// modes. program is that of New.
func Over(ids local.IDs, program string) *Files {
	m, ok := ids.Over()
	if !ok {
		return nil
	}
	return &Files{&apart{ids: m, program: program}}
}

// Tree is hostdisk.Tree.
func (f *Files) Tree(ctx context.Context, dir string) (bytes, files int64, err error) {
	s, err := call(ctx, f, whole, dir)
	return s.Bytes, s.Files, err
}

var remove = operation[string, none]{"remove", func(_ context.Context, dir string) (none, error) {
	return none{}, unpack.RemoveAll(dir)
}}

// Remove removes a directory with all that is in it. A missing one is no error.
func (f *Files) Remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := call(context.Background(), f, remove, dir)
	return err
}

type giving struct {
	Dir   string
	Owner layer.Owner
	Mode  uint32
}

var give = operation[giving, none]{"give", func(_ context.Context, a giving) (none, error) {
	return none{}, errors.Join(os.Lchown(a.Dir, a.Owner.UID, a.Owner.GID), unix.Chmod(a.Dir, a.Mode&0o7777))
}}

// Give gives a directory an owner and a mode.
func (f *Files) Give(ctx context.Context, dir string, to layer.Owner, mode uint32) error {
	_, err := call(ctx, f, give, giving{dir, to, mode})
	return err
}

// opened is an open file or directory.
type opened struct{ file *os.File }

func (o *opened) open() **os.File { return &o.file }

var openPlace = operation[hostpath.Own, opened]{"open", func(_ context.Context, o hostpath.Own) (opened, error) {
	f, err := o.Open()
	return opened{f}, err
}}

// Open is hostpath.Own.Open.
func (f *Files) Open(ctx context.Context, o hostpath.Own) (*os.File, error) {
	at, err := call(ctx, f, openPlace, o)
	return at.file, err
}

type copying struct {
	layer.Copy
	From    layer.Origin
	Changes string
	Below   rootfs.Stack
}

func (c *copying) open() **os.File { return &c.From.Dir }

var copyInto = operation[copying, none]{"copy", func(ctx context.Context, a copying) (none, error) {
	from, err := a.From.Open()
	if err != nil {
		return none{}, err
	}
	defer from.Close()
	a.Copy.From = from
	return none{}, a.Into(ctx, a.Changes, a.Below)
}}

// Copy is layer.Copy.Into.
func (f *Files) Copy(ctx context.Context, c layer.Copy, changes string, below rootfs.Stack) error {
	if !f.Apart() {
		return c.Into(ctx, changes, below)
	}
	from, err := c.From.Origin()
	if err != nil {
		return err
	}
	defer from.Dir.Close()
	_, err = call(ctx, f, copyInto, copying{Copy: c, From: from, Changes: changes, Below: below})
	return err
}

// Write is layer.Write.
func (f *Files) Write(ctx context.Context, w io.Writer, changes string) error {
	if r := f.remote(); r != nil {
		return r.write(ctx, w, changes)
	}
	return layer.Write(ctx, w, changes)
}

// Tree is a directory into which layers are unpacked: unpack.Tree.
type Tree interface {
	Apply(ctx context.Context, r io.Reader, kind unpack.Kind) (diffID string, err error)
	Finish() (unpack.Stats, error)
	Close() error
}

// Unpack opens an empty directory to unpack layers into; room is that of an unpack.Tree.
func (f *Files) Unpack(ctx context.Context, dir string, limits unpack.Limits,
	room func(bytes, step int64) error) (Tree, error) {
	if r := f.remote(); r != nil {
		return r.unpack(ctx, dir, limits, room)
	}
	t, err := unpack.New(dir, limits)
	if err != nil {
		return nil, err
	}
	t.Room = room
	return t, nil
}
