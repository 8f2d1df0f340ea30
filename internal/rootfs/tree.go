//go:build linux

package rootfs

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// Tree is a root filesystem to be written as an archive: a directory comes before what is in it, which is in the order
// of names; sockets and devices are left out, since they mean nothing elsewhere.
type Tree struct {
	Root *View
	// Describe completes the header of an entry, and reports whether the entry is written; what is in it is in any case.
	Describe  func(h *tar.Header, st *syscall.Stat_t) bool
	OneDevice bool // what is mounted below Root is left out
}

// Write writes the archive. Errors: Conflict for a file that changes meanwhile, those of ctx, of Root and of w.
func (t Tree) Write(ctx context.Context, w io.Writer) error {
	a := &archiver{Tree: t, tar: tar.NewWriter(w), first: map[[2]uint64]string{}, buf: make([]byte, 256<<10)}
	if err := a.directory(ctx, "."); err != nil {
		return err
	}
	return a.tar.Close()
}

type archiver struct {
	Tree
	tar   *tar.Writer
	dev   uint64
	first map[[2]uint64]string // for hard-linked inodes, the first name
	buf   []byte
}

func (a *archiver) directory(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := a.Root.Lstat(dir)
	if err != nil {
		return err
	}
	names, err := a.Root.Names(dir, 0)
	if err != nil {
		return err
	}
	dev := info.Sys().(*syscall.Stat_t).Dev
	if dir == "." {
		a.dev = dev
	}
	if err := a.header(dir+"/", info, "", ""); err != nil || a.OneDevice && dev != a.dev {
		return err
	}
	for _, name := range names {
		if err := a.entry(ctx, path.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *archiver) entry(ctx context.Context, name string) error {
	info, err := a.Root.Lstat(name)
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case os.ModeDir:
		return a.directory(ctx, name)
	case os.ModeSymlink:
		to, err := a.Root.Readlink(name)
		if err != nil {
			return err
		}
		return a.header(name, info, to, "")
	case os.ModeNamedPipe:
		return a.header(name, info, "", "")
	case 0:
		return a.file(name, info)
	}
	return nil
}

func (a *archiver) file(name string, info os.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	id := [2]uint64{st.Dev, st.Ino}
	if first, ok := a.first[id]; ok {
		return a.header(name, info, "", first)
	}
	if st.Nlink > 1 {
		a.first[id] = name
	}
	f, err := a.Root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	changed := cove.Errorf(cove.Conflict, "%.200q changed while it was being read", name)
	now, err := f.Stat()
	if err != nil || !os.SameFile(info, now) {
		return changed
	}
	if err := a.header(name, now, "", ""); err != nil {
		return err
	}
	// A file that grew is cut.
	n, err := io.CopyBuffer(struct{ io.Writer }{a.tar}, struct{ io.Reader }{io.LimitReader(f, now.Size())}, a.buf)
	if err == nil && n != now.Size() {
		return changed
	}
	return err
}

// header writes the header of an entry: of a symbolic link to one name, or of a hard link to another.
func (a *archiver) header(name string, info os.FileInfo, symlink, hardLink string) error {
	h, err := tar.FileInfoHeader(info, symlink)
	if err != nil {
		return err
	}
	h.Name = name
	if hardLink != "" {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, hardLink, 0
	}
	if !a.Describe(h, info.Sys().(*syscall.Stat_t)) {
		return nil
	}
	return a.tar.WriteHeader(h)
}
