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
// sandbox has its own /dev. Of the extended attributes the capabilities of programs are kept that root inside may
// have. Owners are kept when the process may set them (root), with ids beyond 65535 mapped to 65534; otherwise the
// caller owns everything.
//
// # Limits
//
// Entries, bytes, the ratio of unpacked to packed, name length and depth are bounded, over all layers of a tree
// together.
package unpack

import (
	"archive/tar"
	"context"
	"hash/maphash"
	"io"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
)

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
	t := &Tree{root: f, limits: limits, owners: mayChown(), dirs: map[uint64]dirMeta{}, linked: map[uint64]bool{},
		seed: maphash.MakeSeed(), buf: make([]byte, 256<<10), now: time.Now()}
	t.at.fd = -1
	return t, nil
}

// Close releases the directory; it removes nothing.
func (t *Tree) Close() error {
	t.forget()
	return t.root.Close()
}

// Apply applies one archive, plain or compressed with gzip, bzip2 or zstd, and returns the SHA-256 of its uncompressed
// bytes as lower-case hex (the diff id of a layer). After an error the tree is inconsistent and must be removed.
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
