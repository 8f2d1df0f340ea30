package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// importDir copies a directory into the store through a canonical archive: equal trees have equal digests.
func (s *Store) importDir(ctx context.Context, t target, tag string, o ImportOptions) (string, error) {
	if tag == "" {
		return "", cove.Errorf(cove.InvalidArgument, "an imported directory needs a name").
			WithHint("give one, or use it where it is with --image %s", t)
	}
	path, err := s.userPath(t.path)
	if err != nil {
		return "", err
	}
	root, err := openRoot(path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := s.ensure(); err != nil {
		return "", err
	}
	tmp, err := s.newTemp()
	if err != nil {
		return "", err
	}
	defer s.discard(tmp)
	c := &content{plain: true, layers: []layer{{size: -1, kind: unpack.Archive,
		open: func(ctx context.Context) (io.ReadCloser, error) { return archiveOf(ctx, root), nil }}}}
	img, err := s.fill(ctx, tmp.dir, c, t.String(), newReporter(o.Progress))
	if err != nil {
		return "", about(t.String(), err)
	}
	// Only now is the digest known; the image may exist already.
	img.Digest = c.layers[0].diffID
	err = s.withImage(ctx, img.Digest, func() error { return s.publish(tmp, img) }, func() error {
		return s.update(ctx, func(i *index) error { i.Names[tag] = named{Digest: img.Digest}; return nil })
	})
	return img.Digest, err
}

// archiveOf renders a directory as a tar archive, whose order and form depend on the tree alone.
func archiveOf(ctx context.Context, root *os.Root) io.ReadCloser {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := &archiver{ctx: ctx, root: root, tar: tar.NewWriter(pw), first: map[[2]uint64]string{},
			buf: make([]byte, 256<<10)}
		err := w.directory(".")
		if err == nil {
			err = w.tar.Close()
		}
		pw.CloseWithError(err)
	}()
	return &pipe{pr, done}
}

// pipe waits, when closed, for its writer.
type pipe struct {
	*io.PipeReader
	done <-chan struct{}
}

func (p *pipe) Close() error {
	err := p.PipeReader.Close()
	<-p.done
	return err
}

type archiver struct {
	ctx   context.Context
	root  *os.Root // nothing outside is read, whatever the symlinks
	tar   *tar.Writer
	dev   uint64
	first map[[2]uint64]string // for hard-linked inodes, the first name
	buf   []byte
}

func (a *archiver) directory(dir string) error {
	if err := a.ctx.Err(); err != nil {
		return cove.Errorf(cove.Canceled, "the import was canceled: %w", err)
	}
	d, err := a.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return storage(err, "read the directory")
	}
	info, err := d.Stat()
	if err != nil {
		d.Close()
		return storage(err, "read the directory")
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return storage(err, "read the directory")
	}
	st := info.Sys().(*syscall.Stat_t)
	if dir == "." {
		a.dev = st.Dev
	}
	if err := a.header(dir+"/", info, st, ""); err != nil {
		return err
	}
	if st.Dev != a.dev {
		return nil // a mount point, not part of the tree
	}
	slices.Sort(names)
	for _, name := range names {
		if err := a.entry(path.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *archiver) entry(name string) error {
	info, err := a.root.Lstat(name)
	if err != nil {
		return storage(err, "read the directory")
	}
	st := info.Sys().(*syscall.Stat_t)
	switch info.Mode().Type() {
	case os.ModeDir:
		return a.directory(name)
	case os.ModeSymlink:
		to, err := a.root.Readlink(name)
		if err != nil {
			return storage(err, "read the directory")
		}
		return a.header(name, info, st, to)
	case os.ModeNamedPipe:
		return a.header(name, info, st, "")
	case 0:
		return a.file(name, info, st)
	}
	return nil // images contain no devices and sockets
}

func (a *archiver) file(name string, info os.FileInfo, st *syscall.Stat_t) error {
	id := [2]uint64{st.Dev, st.Ino}
	if first, ok := a.first[id]; ok {
		return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: first, Format: tar.FormatPAX})
	}
	if st.Nlink > 1 {
		a.first[id] = name
	}
	f, err := a.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return storage(err, "read the directory")
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(info, now) {
		return cove.Errorf(cove.Conflict, "%.200q changed while it was being read", name)
	}
	if err := a.header(name, now, now.Sys().(*syscall.Stat_t), ""); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, struct{ io.Reader }{io.LimitReader(f, now.Size())}, a.buf)
	if err == nil && n != now.Size() {
		return cove.Errorf(cove.Conflict, "%.200q changed while it was being read", name)
	}
	return storage(err, "read the directory")
}

func (a *archiver) header(name string, info os.FileInfo, st *syscall.Stat_t, link string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("describe %.200q: %w", name, err)
	}
	// Only properties of the tree itself; times in whole seconds, as in most archives.
	h = &tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Size: h.Size, Mode: int64(st.Mode & 0o1777),
		Uid: int(st.Uid), Gid: int(st.Gid), ModTime: h.ModTime.Truncate(time.Second), Format: tar.FormatPAX}
	return a.tar.WriteHeader(h)
}
