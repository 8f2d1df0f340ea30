package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is one of a release, with its path below the prefix.
type file struct {
	path string
	data []byte
	link string // target of a symbolic link
	mode fs.FileMode
}

// tree returns the files of an architecture, by path.
func (r *release) tree(programs []string) ([]file, error) {
	all := slices.Clone(r.pages)
	add := func(to, from string, mode fs.FileMode) error {
		data, err := os.ReadFile(from)
		all = append(all, file{path: to, data: data, mode: mode})
		return err
	}
	for _, p := range programs {
		if err := add("bin/"+filepath.Base(p), p, 0o755); err != nil {
			return nil, err
		}
	}
	all = append(all, file{path: "bin/git-remote-cove", link: "cove", mode: 0o777})
	for to, from := range map[string]string{
		"lib/systemd/system/cove.service":                 "packaging/systemd/cove.service",
		"lib/systemd/system/user@.service.d/10-cove.conf": "packaging/systemd/user-delegate.conf",
		"share/doc/cove/LICENSE":                          "LICENSE",
		"share/doc/cove/README.md":                        "README.md",
		"share/doc/cove/examples/cove.example.yaml":       "docs/cove.example.yaml",
		"share/doc/cove/examples/cove.default":            "packaging/debian/cove.default",
	} {
		if err := add(to, filepath.Join(r.source, from), 0o644); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// clientTree returns the files of a client, by path. Windows has no manual pages and no shells of ours.
func (r *release) clientTree(system, program string) ([]file, error) {
	all := []file{{path: "bin/git-remote-cove", link: "cove", mode: 0o777}}
	all = append(all, r.pages...)
	if system == "windows" {
		all = nil
	}
	for to, from := range map[string]string{
		"bin/" + filepath.Base(program): program,
		"share/doc/cove/LICENSE":        filepath.Join(r.source, "LICENSE"),
		"share/doc/cove/install.md":     filepath.Join(r.source, "docs", "install.md"),
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		mode := fs.FileMode(0o644)
		if from == program {
			mode = 0o755
		}
		all = append(all, file{path: to, data: data, mode: mode})
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// zip writes an archive for Windows of files below a directory top. There are no links among them.
func (r *release) zip(to, top string, files []file) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(top, f.path), Method: zip.Deflate, Modified: r.epoch}
		h.SetMode(f.mode)
		entry, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

// archive writes a compressed tar archive of files below a directory top.
func (r *release) archive(to, top string, files []file) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	directory := func(dir string) error {
		for _, d := range parents(dir) {
			if made[d] {
				continue
			}
			made[d] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755, ModTime: r.epoch}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range files {
		name := path.Join(top, f.path)
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: r.epoch}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, compressed(b.Bytes()), 0o644)
}

// parents returns a directory and those above it, the topmost first.
func parents(dir string) []string {
	if dir == "." || dir == "/" {
		return nil
	}
	return append(parents(path.Dir(dir)), dir)
}
