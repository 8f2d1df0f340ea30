package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cove-sandbox/cove"
)

// Import adds an image to the store from a file or directory: oci:PATH[:tag], docker-archive:PATH[:tag], tar:PATH,
// dir:PATH, or a path without a scheme, whose kind is detected. as is the image's name, and may be empty. Names stated
// by an archive are ignored, so that it cannot replace another image.
//
// Errors: InvalidArgument, NotFound, Forbidden, TooLarge, Unsupported, Corrupt, StorageFull, Canceled.
func (s *Store) Import(ctx context.Context, source, as string, o ImportOptions) (Image, error) {
	tag := ""
	if as != "" {
		t, err := parse(as)
		if err != nil {
			return Image{}, err
		}
		if _, ok := t.name.(name.Tag); !ok {
			return Image{}, cove.Errorf(cove.InvalidArgument, "%.200q cannot be the name of an image",
				as).WithHint("write NAME or NAME:TAG")
		}
		tag = t.ref
	}
	t, err := s.parseSource(source)
	if err != nil {
		return Image{}, err
	}
	var digest string
	if t.kind == fromDir {
		digest, err = s.importDir(ctx, t, tag, o)
	} else {
		var f located
		if f, err = s.locate(t); err == nil {
			digest, err = s.importFile(ctx, f, tag, false, o)
		}
	}
	if err != nil {
		return Image{}, err
	}
	return s.Get(ctx, digest)
}

// parseSource parses an image string, or a path without a scheme.
func (s *Store) parseSource(source string) (target, error) {
	if filepath.IsAbs(source) {
		real, err := s.userPath(source)
		if err != nil {
			return target{}, err
		}
		k, err := detect(real)
		if err != nil {
			return target{}, err
		}
		source = string(k) + ":" + source
	}
	t, err := parse(source)
	if err != nil {
		return target{}, err
	}
	if t.kind.OnDisk() {
		return t, nil
	}
	return target{}, cove.Errorf(cove.InvalidArgument, "%.200q is nothing to import", source).
		WithHint("give an absolute path, or dir:PATH, tar:PATH, oci:PATH, docker-archive:PATH")
}

// importFile adds an archive or layout to the store and records its stamp, so that the next Resolve need not read it.
// implied says that no user imports it.
func (s *Store) importFile(ctx context.Context, f located, tag string, implied bool, o ImportOptions) (string, error) {
	begun := time.Now()
	before, err := stampOf(f.stamped())
	if errors.Is(err, fs.ErrNotExist) {
		return "", cove.Errorf(cove.InvalidArgument, "%s: no index.json in it, so it is no OCI layout", f.key())
	}
	if err != nil {
		return "", storage(err, "look at "+f.key())
	}
	c, closer, err := s.openFile(ctx, f, o)
	if err != nil {
		return "", about(f.key(), err)
	}
	defer closer.Close()
	digest, err := s.add(ctx, c, f.key(), oneAtATime(o.Progress), func(i *index) {
		if tag != "" {
			i.Names[tag] = named{Digest: c.digest}
		} else {
			i.remember(f, c.digest, implied, before, begun)
		}
	})
	return digest, about(f.key(), err)
}

// remember records a file's image, unless the file was changed while it was read.
func (i *index) remember(f located, digest string, implied bool, before stamp, begun time.Time) {
	if old, ok := i.Files[f.key()]; ok && !old.Implied {
		implied = false // a user has imported the file
	}
	delete(i.Files, f.key())
	after, err := stampOf(f.stamped())
	if err != nil || after != before {
		return
	}
	// A file that changed a moment ago may change again within the same tick of the clock. The entry then keeps the
	// image, with a stamp that never matches, so that the file is read again.
	if begun.Sub(time.Unix(0, max(after.CTime, after.MTime))) < 2*time.Second {
		after.Size = -1
	}
	i.Files[f.key()] = filed{Digest: digest, Path: f.stamped(), Stamp: after, Implied: implied}
}

// openFile reads the part of a source that identifies its image.
func (s *Store) openFile(ctx context.Context, f located, o ImportOptions) (*content, io.Closer, error) {
	p, err := parsePlatform(o.Platform)
	if err != nil {
		return nil, nil, err
	}
	if f.kind == fromTar {
		return openTar(ctx, f.path)
	}
	from, err := s.openFiles(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	var c *content
	if f.kind == fromDocker {
		c, err = loadDockerArchive(from, f.tag, p)
	} else {
		c, err = loadLayout(ctx, from, f.tag, p, s.limits)
	}
	if err != nil {
		from.Close()
		return nil, nil, storage(err, "read the image")
	}
	return c, from, nil
}

func (s *Store) openFiles(ctx context.Context, f located) (namedFiles, error) {
	if !f.dir {
		return s.openArchive(ctx, f.path)
	}
	root, err := openRoot(f.path)
	return laidOut{root}, err
}

func detect(path string) (kind, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", storage(err, "look at "+path)
	}
	if info.IsDir() {
		if _, err := os.Lstat(filepath.Join(path, "oci-layout")); err == nil {
			return fromLayout, nil
		}
		return fromDir, nil
	}
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	k, err := detectArchive(f)
	if err != nil {
		return "", fmt.Errorf("look into %s: %w", path, err)
	}
	return k, nil
}
