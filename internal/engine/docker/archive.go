//go:build linux

package docker

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
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// writeHostTree writes an archive of directories, links and generated files that is the same every time.
func writeHostTree(w io.Writer, h rootfs.Host) error {
	tw := tar.NewWriter(w)
	for _, dir := range hostTree(h) {
		mode := int64(0o755)
		for _, w := range rootfs.Writables(cove.CodeUser) {
			if w.Name == dir {
				mode = int64(w.Mode)
			}
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: mode}); err != nil {
			return err
		}
	}
	for _, l := range h.Links {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: l.Name[1:], Linkname: l.Target,
			Mode: 0o777}); err != nil {
			return err
		}
	}
	for _, f := range rootfs.EtcFiles(rootfs.Hostname, cove.CodeUser) {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name[1:], Mode: int64(f.Mode),
			Size: int64(len(f.Data))}); err != nil {
			return err
		}
		if _, err := io.WriteString(tw, f.Data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// inode identifies a file with several names.
type inode struct{ dev, ino uint64 }

// writeTree writes an archive of everything below root but sockets and device nodes, which mean nothing elsewhere.
func writeTree(ctx context.Context, w io.Writer, root *os.Root) error {
	tw := tar.NewWriter(w)
	names := map[inode]string{}
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return err
		}
		fi, err := root.Lstat(name)
		if err != nil {
			return err
		}
		return writeEntry(tw, root, name, fi, names)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func writeEntry(tw *tar.Writer, root *os.Root, name string, fi fs.FileInfo, names map[inode]string) error {
	if fi.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 {
		return nil
	}
	target := ""
	if fi.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = root.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(fi, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	if fi.IsDir() {
		h.Name += "/"
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && fi.Mode().IsRegular() && st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if first := names[id]; first != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return tw.WriteHeader(h)
		}
		names[id] = name
	}
	if err := tw.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
		return err
	}
	return copyFile(tw, root, name, fi)
}

func copyFile(w io.Writer, root *os.Root, name string, fi fs.FileInfo) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(fi, opened) {
		return fmt.Errorf("%s was changed while it was read", name)
	}
	// A file that grew is cut; one that shrank is an error of the archive.
	_, err = io.CopyN(w, f, fi.Size())
	return err
}

// fingerprint identifies the content of a tree by the names, kinds, owners, sizes and times of change of all that is in
// it, without reading a file.
func fingerprint(ctx context.Context, root *os.Root) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		fi, err := root.Lstat(name)
		if err != nil {
			return err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: the file system does not describe it", name)
		}
		fmt.Fprintf(sum, "%q %o %d %d %d %d %d.%d %d.%d\n", path.Clean(name), st.Mode, st.Uid, st.Gid, st.Ino, st.Size,
			st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// printable keeps control characters of hostile output out of terminals.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// hostTree are the directories on which something of the host's or a writable place is put.
func hostTree(h rootfs.Host) []string {
	dirs := []string{"/.cove", "/dev", "/etc", "/home", "/proc", "/root", "/sys", "/var"}
	dirs = append(dirs, h.Dirs...)
	for _, w := range rootfs.Writables(cove.CodeUser) {
		dirs = append(dirs, w.Name)
	}
	dirs = append(dirs, cove.Workspace)
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
