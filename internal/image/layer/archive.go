package layer

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// DiffID returns the digest of a layer's archive, "sha256:…".
func DiffID(ctx context.Context, changes string) (string, error) {
	h := sha256.New()
	err := writeTo(ctx, h, changes, true)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), failure(err, "read a layer")
}

// Content returns a digest of a layer that does not depend on times.
func Content(ctx context.Context, changes string) (string, error) {
	h := sha256.New()
	err := writeTo(ctx, h, changes, false)
	return hex.EncodeToString(h.Sum(nil)), failure(err, "read a layer")
}

// Write writes a layer as an archive, whose form depends on the layer alone.
func Write(ctx context.Context, w io.Writer, changes string) error {
	return failure(writeTo(ctx, w, changes, true), "write a layer")
}

func writeTo(ctx context.Context, w io.Writer, changes string, times bool) error {
	a := archiver{tar: tar.NewWriter(w), times: times, first: map[[2]uint64]string{}}
	if err := a.directory(ctx, changes, ""); err != nil {
		return err
	}
	return a.tar.Close()
}

type archiver struct {
	tar   *tar.Writer
	times bool
	first map[[2]uint64]string // of inodes, the first name
}

func (a archiver) directory(ctx context.Context, dir, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := a.entry(ctx, filepath.Join(dir, e.Name()), path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (a archiver) entry(ctx context.Context, place, name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(place, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: place, Err: err}
	}
	own, err := attributesOf(place)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), Format: tar.FormatPAX}
	for attribute, value := range own {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+attribute] = value
	}
	if a.times {
		h.ModTime = time.Unix(0, st.Mtim.Nano()).Truncate(time.Second)
	}
	switch kind(st) {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := a.tar.WriteHeader(h); err != nil {
			return err
		}
		if rootfs.Opaque(place) {
			if err := a.empty(path.Join(name, ".wh..wh..opq")); err != nil {
				return err
			}
		}
		return a.directory(ctx, place, name)
	case unix.S_IFLNK:
		if h.Linkname, err = os.Readlink(place); err != nil {
			return err
		}
		h.Typeflag = tar.TypeSymlink
		return a.tar.WriteHeader(h)
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
		return a.tar.WriteHeader(h)
	case unix.S_IFREG:
		return a.file(place, h, st)
	}
	if whiteout(st) {
		return a.empty(path.Join(path.Dir(name), ".wh."+path.Base(name)))
	}
	return nil // a socket means nothing elsewhere
}

func (a archiver) empty(name string) error {
	return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX})
}

func (a archiver) file(place string, h *tar.Header, st unix.Stat_t) error {
	id := [2]uint64{st.Dev, st.Ino}
	if first, ok := a.first[id]; ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return a.tar.WriteHeader(h)
	}
	a.first[id] = h.Name
	f, err := os.OpenFile(place, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(a.tar, f, st.Size); err != nil {
		return fmt.Errorf("%s: %w", h.Name, err)
	}
	return nil
}
