package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/cove-sandbox/cove"
)

// ImportOptions configure Import.
type ImportOptions struct {
	Progress Progress // may be nil
	Platform string   // of an OCI layout with several: "linux/arm64"; empty is this machine's
}

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
			digest, err = s.importFile(ctx, f, tag, o)
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
	switch t.kind {
	case fromDir, fromTar, fromLayout, fromDocker:
		return t, nil
	}
	return target{}, cove.Errorf(cove.InvalidArgument, "%.200q is nothing to import", source).
		WithHint("give an absolute path, or dir:PATH, tar:PATH, oci:PATH, docker-archive:PATH")
}

// located is an archive or layout on disk.
type located struct {
	kind kind
	path string // resolved and checked
	tag  string
	dir  bool
}

// key returns the file's key in the index.
func (f located) key() string {
	if f.tag != "" {
		return string(f.kind) + ":" + f.path + ":" + f.tag
	}
	return string(f.kind) + ":" + f.path
}

// stamped returns the path of the file that changes whenever the image does.
func (f located) stamped() string {
	if f.dir {
		return filepath.Join(f.path, "index.json")
	}
	return f.path
}

// locate finds the file of a target. Paths may contain colons, so the longest existing part is the path and the rest
// the tag.
func (s *Store) locate(t target) (located, error) {
	f := located{kind: t.kind, path: t.path}
	if t.kind != fromTar {
		f.path, f.tag = splitTag(t.path)
	}
	real, err := s.userPath(f.path)
	if err != nil {
		return located{}, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return located{}, storage(err, "look at "+f.path)
	}
	f.path, f.dir = real, info.IsDir()
	if !info.Mode().IsRegular() && (!f.dir || t.kind != fromLayout) {
		return located{}, cove.Errorf(cove.InvalidArgument, "%s is not a file", t)
	}
	return f, nil
}

func splitTag(path string) (string, string) {
	for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], ':') {
		if _, err := os.Lstat(path[:at]); err == nil {
			return path[:at], strings.TrimPrefix(path[at:], ":")
		}
	}
	return path, ""
}

// importFile adds an archive or layout to the store and records its stamp, so that the next Resolve need not read it.
func (s *Store) importFile(ctx context.Context, f located, tag string, o ImportOptions) (string, error) {
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
	source := f.key()
	digest, err := s.add(ctx, c, source, newReporter(o.Progress), func(i *index) {
		if tag != "" {
			i.Names[tag] = named{Digest: c.digest}
		}
		if tag == "" {
			i.remember(f, c.digest, before, begun)
		}
	})
	return digest, about(source, err)
}

// remember records a file's image, unless the file was changed while it was read.
func (i *index) remember(f located, digest string, before stamp, begun time.Time) {
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
	i.Files[f.key()] = filed{Digest: digest, Path: f.stamped(), Stamp: after}
}

// about adds the source to an error.
func about(source string, err error) error {
	var known *cove.Error
	if err == nil || !errors.As(err, &known) {
		return err
	}
	e := *known
	e.Message = source + ": " + e.Message
	return &e
}

// openFile reads the part of a source that identifies its image.
func (s *Store) openFile(ctx context.Context, f located, o ImportOptions) (*content, io.Closer, error) {
	p, err := parsePlatform(o.Platform)
	if err != nil {
		return nil, nil, err
	}
	switch f.kind {
	case fromTar:
		return s.openTar(ctx, f.path, newReporter(o.Progress))
	case fromDocker:
		files, err := s.openArchive(ctx, f.path)
		if err != nil {
			return nil, nil, err
		}
		c, err := loadDockerArchive(files, f.tag, p)
		return closing(c, files, err)
	}
	var files files
	if f.dir {
		files, err = openDirectory(f.path)
	} else {
		files, err = s.openArchive(ctx, f.path)
	}
	if err != nil {
		return nil, nil, err
	}
	c, err := loadLayout(ctx, files, f.tag, p, s.limits)
	return closing(c, files, err)
}

func closing(c *content, closer io.Closer, err error) (*content, io.Closer, error) {
	if err != nil {
		closer.Close()
		return nil, nil, storage(err, "read the image")
	}
	return c, closer, nil
}

// detect determines the kind of a path.
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
