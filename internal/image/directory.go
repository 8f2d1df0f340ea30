package image

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/unpack"
	"github.com/cove-sandbox/cove/internal/rootfs"
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
	img, err := s.fill(ctx, tmp, c, t.String(), oneAtATime(o.Progress))
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
	return written(func(w io.Writer) error {
		err := rootfs.Tree{Root: rootfs.ViewOf(root), Describe: func(h *tar.Header, st *syscall.Stat_t) bool {
			if canonicalHeader(h, st); h.Typeflag == tar.TypeReg && h.Mode&0o111 != 0 {
				h.PAXRecords = capabilityOf(root, h.Name)
			}
			return true
		}, OneDevice: true}.Write(ctx, w)
		return storage(err, "read the directory")
	})
}

// capabilityOf returns the record of an archive with the capabilities of a program, if it has any.
func capabilityOf(root *os.Root, name string) map[string]string {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil // as its content says, too
	}
	defer f.Close()
	value := make([]byte, 64)
	n, err := unix.Fgetxattr(int(f.Fd()), unpack.Capability, value)
	if err != nil {
		return nil
	}
	return map[string]string{unpack.CapabilityRecord: string(value[:n])}
}

// canonicalHeader keeps only properties of the tree itself; times in whole seconds, as in most archives.
func canonicalHeader(h *tar.Header, st *syscall.Stat_t) {
	kept := tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Format: tar.FormatPAX}
	if h.Typeflag != tar.TypeLink {
		kept.Size, kept.Mode, kept.ModTime = h.Size, int64(st.Mode&0o7777), h.ModTime.Truncate(time.Second)
		kept.Uid, kept.Gid = int(st.Uid), int(st.Gid)
	}
	*h = kept
}
