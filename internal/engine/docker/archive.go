//go:build linux

package docker

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// writeHostTree writes an archive of directories, links and generated files that is the same every time.
func writeHostTree(w io.Writer, h rootfs.Host) error {
	modes := map[string]uint32{}
	for _, w := range rootfs.Writables(cove.CodeUser) {
		modes[w.Name] = w.Mode
	}
	tw := tar.NewWriter(w)
	var err error
	add := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err == nil {
			err = tw.WriteHeader(&h)
		}
		if err == nil {
			_, err = io.WriteString(tw, data)
		}
	}
	for _, dir := range hostTree(h) {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: int64(cmp.Or(modes[dir], 0o755))}, "")
	}
	for _, l := range h.Links {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: l.Name[1:], Linkname: l.Target, Mode: 0o777}, "")
	}
	for _, f := range rootfs.EtcFiles(rootfs.Hostname, cove.CodeUser) {
		add(tar.Header{Typeflag: tar.TypeReg, Name: f.Name[1:], Mode: int64(f.Mode)}, f.Data)
	}
	return cmp.Or(err, tw.Close())
}

// writeTree writes an archive of everything below root.
func writeTree(ctx context.Context, w io.Writer, root *rootfs.View) error {
	return rootfs.Tree{Root: root, Describe: func(h *tar.Header, _ *syscall.Stat_t) bool {
		h.Uname, h.Gname = "", ""
		return h.Name != "./"
	}}.Write(ctx, w)
}

// fingerprint identifies the content of a tree by the metadata of all that is in it, without reading a file.
func fingerprint(ctx context.Context, root *rootfs.View) (string, error) {
	sum := sha256.New()
	var add func(name string) error
	add = func(name string) error {
		fi, err := root.Lstat(name)
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		fmt.Fprintf(sum, "%q %o %d %d %d %d %d.%d %d.%d\n", name, st.Mode, st.Uid, st.Gid, st.Ino, st.Size,
			st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
		if !fi.IsDir() {
			return nil
		}
		names, err := root.Names(name, 0)
		for _, entry := range names {
			err = cmp.Or(err, add(path.Join(name, entry)))
		}
		return err
	}
	err := add(".")
	return hex.EncodeToString(sum.Sum(nil)), err
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
