// Package unpack owns the step from image layers to a directory: it applies hostile tar archives, and never touches
// anything outside the directory.
//
// # Containment
//
// The kernel resolves a path of an archive only relative to the tree's own root, through openat2 with RESOLVE_IN_ROOT,
// which treats the tree as "/" for "..", absolute and relative symbolic links alike. An entry is made in the directory
// so opened, by its last component alone, exclusively and without following a symlink. A symbolic link from an earlier
// entry or layer is therefore followed as it would be inside a sandbox, and leads nowhere else.
//
// # Dropped properties
//
// Absolute names, "..", NUL, and hard links by such names are refused. Block and character devices are skipped: a
// sandbox has its own /dev. Set-user-id and set-group-id bits and all extended attributes, security.capability among
// them, are dropped. Owners are kept when the process may set them (root), with ids beyond 65535 mapped to 65534;
// otherwise the caller owns everything.
//
// # Limits
//
// Entries, bytes, the ratio of unpacked to packed, name length and depth are bounded, over all layers of a tree
// together.
package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
)

// Limits bound one tree.
type Limits struct {
	Entries    int64 // archive entries of all layers together
	Bytes      int64 // bytes of all layers, uncompressed, and of all files
	Ratio      int64 // unpacked bytes for each packed one, beyond RatioFloor
	NameLength int   // bytes of a path inside the tree
	Depth      int   // components of a path inside the tree
}

// RatioFloor is the unpacked size of a layer below which its ratio is ignored: small archives of zeros are harmless and
// compress a thousandfold.
const RatioFloor = 128 << 20

// DefaultLimits returns limits far above every real image, and below harm to a machine.
func DefaultLimits() Limits {
	return Limits{Entries: 1_000_000, Bytes: 10 << 30, Ratio: 250, NameLength: 4095, Depth: 255}
}

// Kind determines the meaning of an archive's special names.
type Kind int

const (
	Layer   Kind = iota // ".wh." names are whiteouts, as in the OCI image spec
	Archive             // every name is literal
)

// Stats are the totals of a tree.
type Stats struct {
	Bytes   int64 // content of regular files, each inode once
	Files   int64 // all entries except directories
	Dirs    int64
	Skipped int64 // entries that are never unpacked: devices, unknown types
}

// Tree is a directory being filled. It must be used by one goroutine.
type Tree struct {
	root    *os.File
	limits  Limits
	owners  bool // the process may change owners
	entries int64
	bytes   int64 // of archives
	written int64 // of files: a sparse file is larger than its archive
	skipped int64

	// dirs holds the modes and times that Finish sets, by inode: until then all directories are writable, so that
	// read-only ones can be filled without root.
	dirs map[uint64]dirMeta
	// created holds the entries of the layer being applied: whiteouts hide only entries of the layers below.
	created map[place]struct{}
	seed    maphash.Seed
	at      parent // the last opened directory
	buf     []byte
	now     time.Time
}

// place identifies a name by the inode of its directory and a hash of its last component, under a random seed: storing
// a million long names would take too much memory.
type place struct {
	dir  uint64
	base uint64
}

func (t *Tree) place(dir uint64, base string) place {
	return place{dir, maphash.String(t.seed, base)}
}

type dirMeta struct {
	mode  uint32
	mtime int64 // nanoseconds since 1970
}

// New opens an empty directory that only the caller can reach.
func New(dir string, limits Limits) (*Tree, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return nil, failure(err, "open", dir)
	}
	if _, err := f.Readdirnames(1); err != io.EOF {
		f.Close()
		return nil, cove.Errorf(cove.Internal, "unpack into %q: not an empty directory: %v", dir, err)
	}
	t := &Tree{root: f, limits: limits, owners: mayChown(), dirs: map[uint64]dirMeta{}, seed: maphash.MakeSeed(),
		buf: make([]byte, 256<<10), now: time.Now()}
	t.at.fd = -1
	return t, nil
}

// Close releases the directory; it removes nothing.
func (t *Tree) Close() error {
	t.forget()
	return t.root.Close()
}

// Apply applies one archive, plain or compressed with gzip or zstd, and returns the SHA-256 of its uncompressed bytes
// as lower-case hex (the diff id of a layer). After an error the tree is inconsistent and must be removed.
//
// Errors: InvalidArgument (the archive is malformed, or escapes), TooLarge, StorageFull, Unsupported (a compression),
// Canceled.
func (t *Tree) Apply(ctx context.Context, r io.Reader, kind Kind) (string, error) {
	s, err := t.newStream(ctx, r)
	if err != nil {
		return "", err
	}
	defer s.stop()
	t.created = map[place]struct{}{}
	if err := t.applyAll(tar.NewReader(s), kind); err != nil {
		return "", s.explain(err)
	}
	// The digest includes padding after the end.
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{s}, t.buf); err != nil {
		return "", s.explain(err)
	}
	return s.digest(), nil
}

func (t *Tree) applyAll(tr *tar.Reader, kind Kind) error {
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return malformed(err)
		}
		if t.entries++; t.entries > t.limits.Entries {
			return cove.Errorf(cove.TooLarge, "the image has more than %d files", t.limits.Entries)
		}
		if err := t.apply(tr, h, kind); err != nil {
			return err
		}
	}
}

// malformed wraps errors of archive/tar; errors of the stream below keep their own code.
func malformed(err error) error {
	if _, ok := errors.AsType[*cove.Error](err); ok {
		return err
	}
	return cove.Errorf(cove.InvalidArgument, "not a readable tar archive: %w", err)
}
