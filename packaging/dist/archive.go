package main

import (
	"archive/tar"
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
