package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// namedFiles is the common reader of formats that consist of named files: a directory, or an indexed tar archive.
type namedFiles interface {
	open(name string) (io.ReadCloser, int64, error) // the content and its size
	io.Closer
}

// openTar opens the archive of a root filesystem as a content. It reads the digest first, so that a known archive is
// not unpacked, and checks it again while unpacking.
func openTar(ctx context.Context, file string) (*content, io.Closer, error) {
	f, err := openRegular(file)
	if err != nil {
		return nil, nil, err
	}
	sum, size, err := v1.SHA256(withContext(ctx, f))
	if err != nil {
		f.Close()
		return nil, nil, storage(err, "read the archive")
	}
	digest := sum.String()
	open := func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(f, 0, size)), nil
	}
	c := &content{digest: digest, plain: true,
		layers: []layer{{digest: digest, size: size, kind: unpack.Archive, open: open}}}
	return c, f, nil
}

// archived is a tar archive whose files are read in place.
type archived struct {
	f      *os.File
	remove func()
	at     map[string]extent
}

// extent is the position of a file; for a hard link, link is set instead.
type extent struct {
	offset, size int64
	link         string
}

const (
	maxArchiveFiles = 20_000 // in the archive of an image, not in its layers
	maxArchiveName  = 4096   // bytes; tar itself allows a mebibyte
)

// openArchive indexes an archive, after unpacking a compressed one: random access needs plain bytes.
func (s *Store) openArchive(ctx context.Context, file string) (*archived, error) {
	f, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	a := &archived{f: f, remove: func() {}, at: map[string]extent{}}
	plain, err := unpack.IsPlain(f)
	if err == nil && !plain {
		err = s.inflate(ctx, a)
	}
	if err == nil {
		err = a.index(ctx)
	}
	if err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// inflate replaces a compressed archive's file by a plain copy.
func (s *Store) inflate(ctx context.Context, a *archived) error {
	if err := s.ensure(); err != nil {
		return err
	}
	t, err := s.newTemp()
	if err != nil {
		return err
	}
	a.remove = func() { s.discard(t) }
	out, err := os.Create(filepath.Join(t.dir, "archive.tar"))
	if err != nil {
		return storage(err, "unpack the archive")
	}
	packed := a.f
	a.f = out
	defer packed.Close()
	room, err := s.grow(ctx, nil, 0) // it is no image
	if err != nil {
		return err
	}
	defer room.end()
	grow := func(bytes, step int64) error { return room.to(ctx, bytes, step) }
	if err := unpack.Decompress(ctx, out, packed, s.limits, grow); err != nil {
		return storage(err, "unpack the archive")
	}
	return nil
}

func (a *archived) Close() error {
	defer a.remove()
	return a.f.Close()
}

// index records each file's position: tar.Reader reads single blocks, so it is the offset after the header.
func (a *archived) index(ctx context.Context) error {
	if _, err := a.f.Seek(0, io.SeekStart); err != nil {
		return storage(err, "read the archive")
	}
	tr := tar.NewReader(a.f)
	for range maxArchiveFiles {
		if err := ctx.Err(); err != nil {
			return cove.Errorf(cove.Canceled, "reading was canceled: %w", err)
		}
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return cove.Errorf(cove.InvalidArgument, "not a readable tar archive: %w", err)
		}
		if err := a.note(h); err != nil {
			return err
		}
	}
	return cove.Errorf(cove.TooLarge, "more than %d files in the archive of an image", maxArchiveFiles)
}

func (a *archived) note(h *tar.Header) error {
	if len(h.Name) > maxArchiveName || len(h.Linkname) > maxArchiveName {
		return cove.Errorf(cove.TooLarge, "a name in the archive has more than %d bytes", maxArchiveName)
	}
	name := path.Clean(h.Name)
	switch h.Typeflag {
	case tar.TypeReg:
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return cove.Errorf(cove.Unsupported, "%.200q is stored as a sparse file, which is not read", name)
			}
		}
		at, err := a.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return storage(err, "read the archive")
		}
		a.at[name] = extent{offset: at, size: h.Size}
	case tar.TypeSymlink, tar.TypeLink: // "docker save" of older versions links equal layers
		to := h.Linkname
		if h.Typeflag == tar.TypeSymlink {
			to = path.Join(path.Dir(name), to)
		}
		a.at[name] = extent{link: path.Clean(to)}
	}
	return nil
}

func (a *archived) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean(name)
	for range 8 {
		e, ok := a.at[name]
		if !ok {
			break
		}
		if e.link == "" {
			return io.NopCloser(io.NewSectionReader(a.f, e.offset, e.size)), e.size, nil
		}
		name = e.link
	}
	return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// laidOut is a directory; it opens nothing outside, whatever the symlinks.
type laidOut struct{ *os.Root }

func (l laidOut) open(name string) (io.ReadCloser, int64, error) {
	f, err := l.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, 0, cove.Errorf(cove.InvalidArgument, "%.200q is not a regular file", name)
	}
	return f, info.Size(), nil
}

// readSmall reads a file of at most limit bytes.
func readSmall(from namedFiles, name string, limit int64) ([]byte, error) {
	rc, size, err := from.open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, cove.Errorf(cove.InvalidArgument, "%.200q is missing in it: %w", name, err)
		}
		return nil, storage(err, "read the source")
	}
	defer rc.Close()
	if size > limit {
		return nil, cove.Errorf(cove.TooLarge, "%.200q has %d bytes, at most %d are allowed", name, size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(rc, limit))
	return data, storage(err, "read the source")
}

// detectArchive determines an archive's kind by its first names.
func detectArchive(f *os.File) (kind, error) {
	plain := written(func(w io.Writer) error {
		return unpack.Decompress(context.Background(), w, f, unpack.DefaultLimits(), nil)
	})
	defer plain.Close()
	tr := tar.NewReader(plain)
	found := fromTar
	for range maxArchiveFiles {
		h, err := tr.Next()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return "", cove.Errorf(cove.InvalidArgument, "not a readable tar archive: %w", err)
		}
		switch name := path.Clean(h.Name); {
		case name == "manifest.json":
			return fromDocker, nil // docker writes both
		case name == "oci-layout":
			found = fromLayout
		case strings.HasPrefix(name, "usr/"), strings.HasPrefix(name, "bin/"):
			return fromTar, nil
		}
	}
	return found, nil
}
