package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// files is what the formats that consist of named files are read through: a
// directory, or a tar archive used like one.
type files interface {
	open(name string) (io.ReadCloser, int64, error) // the content and its size
	io.Closer
}

// openTar makes a content of a root filesystem's archive. Its digest is read
// first, so that an archive that is known is not unpacked, and checked again
// while it is.
func (s *Store) openTar(ctx context.Context, file string, report *reporter) (*content, io.Closer, error) {
	f, err := openRegular(file)
	if err != nil {
		return nil, nil, err
	}
	h := sha256.New()
	size, err := io.Copy(h, contextReader{ctx, f})
	if err != nil {
		f.Close()
		return nil, nil, storage(err, "read the archive")
	}
	digest := "sha256:" + hex.EncodeToString(h.Sum(nil))
	c := &content{digest: digest, plain: true, layers: []layer{{
		digest: digest, size: size, kind: unpack.Archive,
		open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(f, 0, size)), nil
		},
	}}}
	return c, f, nil
}

// contextReader ends a long read when nobody waits for it any more.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, cove.Errorf(cove.Canceled, "reading was canceled: %w", err)
	}
	return c.r.Read(p)
}

// archived is a tar archive whose files are read where they lie in it.
type archived struct {
	f      *os.File
	remove func()
	at     map[string]extent
}

// extent is where a file lies; link is set instead for one that is another's
// name.
type extent struct {
	offset, size int64
	link         string
}

const (
	maxArchiveFiles = 20_000 // in the archive of an image, not in its layers
	maxArchiveName  = 4096   // bytes; tar itself allows a mebibyte
)

// openArchive indexes an archive; a compressed one is first unpacked into the
// store's temporary directory, as nothing can be found in it otherwise.
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
	if err := unpack.Decompress(ctx, out, packed, s.limits); err != nil {
		return storage(err, "unpack the archive")
	}
	return nil
}

func (a *archived) Close() error {
	defer a.remove()
	return a.f.Close()
}

// index notes where each file lies. The archive's reader asks for single
// blocks, so that the file's offset after a header is where the content is.
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
	case tar.TypeSymlink, tar.TypeLink: // "docker save" of old links equal layers
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

// laidOut is a directory; nothing outside it is opened, whatever its links say.
type laidOut struct{ root *os.Root }

func openDirectory(dir string) (*laidOut, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	return &laidOut{root}, nil
}

func (l *laidOut) Close() error { return l.root.Close() }

func (l *laidOut) open(name string) (io.ReadCloser, int64, error) {
	f, err := l.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
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

// readSmall reads a file that must not be larger than limit.
func readSmall(from files, name string, limit int64) ([]byte, error) {
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

// detectArchive looks at the first names of an archive for what its kind has.
func detectArchive(f *os.File) (kind, error) {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(unpack.Decompress(context.Background(), pw, f, unpack.DefaultLimits()))
	}()
	defer func() { pr.Close(); <-done }()
	tr := tar.NewReader(pr)
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
			return fromDocker, nil // has both when docker wrote it
		case name == "oci-layout":
			found = fromLayout
		case strings.HasPrefix(name, "usr/"), strings.HasPrefix(name, "bin/"):
			return fromTar, nil
		}
	}
	return found, nil
}
