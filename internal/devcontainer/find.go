// Package devcontainer reads the devcontainer.json of a repository, and decides what of it a sandbox takes: pure
// functions. The file is the repository's and so untrusted: what narrows a sandbox is taken, what widens it is left out
// by name, and what it wishes of the network is returned for the user to allow.
package devcontainer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

const (
	folder   = ".devcontainer"
	fileName = "devcontainer.json"

	maxFile = 1 << 20 // bytes

	own = "cove" // the folder of what earlier versions wrote for others, which Find does not choose
)

// File is a devcontainer.json as it lies in a checkout.
type File struct {
	Path string // from the top of the checkout, with slashes
	Data []byte
}

// Find returns the devcontainer.json of a checkout: .devcontainer/devcontainer.json, .devcontainer.json, or that of a
// folder below .devcontainer, which name selects. checkout must not follow links out of itself, as that of an os.Root.
// Errors: NotFound without any, or without one of that name; Conflict where there are several and no name.
func Find(checkout fs.FS, name string) (File, error) {
	all, err := candidates(checkout)
	if err != nil {
		return File{}, err
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = path.Base(path.Dir(p))
	}
	if name != "" {
		i := slices.Index(names, name)
		if i < 0 {
			return File{}, cove.Errorf(cove.NotFound, "there is no %s", path.Join(folder, name, fileName)).
				WithHint("there %s", listOf(all))
		}
		return read(checkout, all[i])
	}
	for _, p := range []string{path.Join(folder, fileName), folder + ".json"} {
		if slices.Contains(all, p) {
			return read(checkout, p)
		}
	}
	switch len(all) {
	case 0:
		return File{}, cove.Errorf(cove.NotFound, "there is no devcontainer.json").
			WithHint("it is %s/%s or %s.json, at the top of the checkout", folder, fileName, folder)
	case 1:
		return read(checkout, all[0])
	}
	return File{}, cove.Errorf(cove.Conflict, "there are several dev containers: %s", strings.Join(names, ", ")).
		WithHint("say which: --devcontainer=%s", names[0])
}

func listOf(paths []string) string {
	if len(paths) == 0 {
		return "is none at all"
	}
	return "are " + strings.Join(paths, ", ")
}

// candidates returns the paths at which there is a file, in the order of the specification.
func candidates(checkout fs.FS) ([]string, error) {
	paths := []string{path.Join(folder, fileName), folder + ".json"}
	var entries []fs.DirEntry
	info, err := fs.Stat(checkout, folder)
	if err == nil && info.IsDir() {
		entries, err = fs.ReadDir(checkout, folder)
	}
	if err != nil && !absent(err) {
		return nil, unreadable(folder, err)
	}
	for _, e := range entries {
		if e.Name() == own {
			continue
		}
		paths = append(paths, path.Join(folder, e.Name(), fileName))
	}
	var found []string
	for _, p := range paths {
		switch info, err := fs.Stat(checkout, p); {
		case err == nil && !info.Mode().IsRegular():
			return nil, cove.Errorf(cove.InvalidArgument, "%s is no regular file", p)
		case err == nil:
			found = append(found, p)
		case !absent(err):
			return nil, unreadable(p, err)
		}
	}
	return found, nil
}

// absent reports that nothing has a path, also because what is above it is a file.
func absent(err error) bool {
	return err != nil && (errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(err.Error(), "not a directory"))
}

func unreadable(name string, err error) error {
	return cove.Errorf(cove.Forbidden, "cannot read %s: %w", name, err).
		WithHint("a link in it must not lead out of the checkout")
}

func read(checkout fs.FS, name string) (File, error) {
	info, err := fs.Stat(checkout, name)
	if err != nil {
		return File{}, unreadable(name, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, cove.Errorf(cove.InvalidArgument, "%s is no regular file", name)
	}
	if info.Size() > maxFile {
		return File{}, cove.Errorf(cove.TooLarge, "%s is larger than %d MiB", name, maxFile>>20)
	}
	data, err := fs.ReadFile(checkout, name)
	if err != nil {
		return File{}, unreadable(name, err)
	}
	return File{name, data}, nil
}

// Files are files of a checkout, by their paths from its top.
type Files map[string][]byte

func (f Files) size() (total int) {
	for _, data := range f {
		total += len(data)
	}
	return total
}

// Referred reads files that a dev container refers to. One that is not there is left out. Errors: Forbidden,
// InvalidArgument, TooLarge.
func Referred(checkout fs.FS, names []string) (Files, error) {
	all := Files{}
	for _, name := range names {
		f, err := read(checkout, name)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[name] = f.Data
	}
	return all, nil
}

// Digest identifies the content that a user agrees to: the file, and those that it refers to.
func Digest(f File, referred Files) string {
	h := sha256.New()
	add := func(name string, data []byte) { fmt.Fprintf(h, "%d %s\n%d\n%s", len(name), name, len(data), data) }
	add(f.Path, f.Data)
	for _, name := range slices.Sorted(maps.Keys(referred)) {
		add(name, referred[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}
