package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// View reads a Stack as a sandbox sees it. Paths are relative to its top, clean and without symbolic links: Resolve
// makes them. Nothing outside of the directories is read, whatever links are in them. The changes of a Stack stay as
// they are while there is a View; a tree that is alone may change.
type View struct {
	roots []*os.Root // the highest first

	mu    sync.Mutex
	parts map[string][]*os.Root // by directories: where they are, the highest first
}

// Open opens the directories. Errors: those of the file system.
func (s Stack) Open() (*View, error) {
	v := &View{parts: map[string][]*os.Root{}}
	for _, dir := range slices.Backward(s) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			v.Close()
			return nil, err
		}
		v.roots = append(v.roots, root)
	}
	return v, nil
}

// ViewOf returns a View of one directory, which it closes.
func ViewOf(root *os.Root) *View { return &View{roots: []*os.Root{root}} }

// Close releases the directories.
func (v *View) Close() {
	for _, root := range v.roots {
		root.Close()
	}
}

// Parts returns the directories of the host that make up a directory, the highest first.
func (v *View) Parts(dir string) (all []string) {
	for _, root := range v.partsOf(dir) {
		all = append(all, filepath.Join(root.Name(), dir))
	}
	return all
}

func (v *View) partsOf(dir string) (all []*os.Root) {
	if dir == "." || len(v.roots) == 1 {
		return v.roots
	}
	v.mu.Lock()
	all, ok := v.parts[dir]
	v.mu.Unlock()
	if ok {
		return all
	}
	for _, root := range v.partsOf(path.Dir(dir)) {
		info, err := root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !info.IsDir() {
			break
		}
		if all = append(all, root); Opaque(filepath.Join(root.Name(), dir)) {
			break
		}
	}
	v.mu.Lock()
	v.parts[dir] = all
	v.mu.Unlock()
	return all
}

// at returns the directory that has a file, with its properties.
func (v *View) at(name string) (*os.Root, fs.FileInfo, error) {
	for _, root := range v.partsOf(path.Dir(name)) {
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, unix.ENOTDIR) || err == nil && root != v.roots[len(v.roots)-1] && whiteout(info) {
			break
		}
		return root, info, err
	}
	return nil, nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
}

// Lstat returns the properties of a file.
func (v *View) Lstat(name string) (fs.FileInfo, error) {
	_, info, err := v.at(name)
	return info, err
}

// Readlink returns the target of a symbolic link.
func (v *View) Readlink(name string) (string, error) {
	root, _, err := v.at(name)
	if err != nil {
		return "", err
	}
	return root.Readlink(name)
}

// Open opens a file for reading, unless it is a symbolic link.
func (v *View) Open(name string) (*os.File, error) {
	root, _, err := v.at(name)
	if err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY, 0)
}

// Part returns the directory of the stack that has a file, the highest one that has a part of a directory.
func (v *View) Part(name string) (dir string, err error) {
	root, _, err := v.at(name)
	if err != nil {
		return "", err
	}
	return root.Name(), nil
}

// Names lists what is in a directory, in the order of names; at most most of each part of it, where that is not 0.
func (v *View) Names(dir string, most int) (all []string, err error) {
	seen := map[string]bool{}
	parts := v.partsOf(dir)
	if len(parts) == 0 {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	for _, root := range parts {
		names, err := namesIn(root, dir, most)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			if root != v.roots[len(v.roots)-1] { // the tree has none
				info, err := root.Lstat(path.Join(dir, name))
				if err != nil {
					return nil, err
				}
				if whiteout(info) {
					continue
				}
			}
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}

func namesIn(root *os.Root, dir string, most int) ([]string, error) {
	d, err := root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(most)
	if most > 0 { // an end is no error
		err = nil
	}
	return names, err
}

// Resolve returns what a path means: one without symbolic links, whose last components may be missing.
func (v *View) Resolve(name string) (string, error) { return Resolve(name, v.Lstat, v.Readlink) }

// maxLinks is the most symbolic links of one path.
const maxLinks = 255

// Resolve returns what a path means in a tree: a clean path without symbolic links, relative to the tree's top, whose
// last components may be missing. look returns a place's properties by such a path, and read the target of a symbolic
// link. Errors: theirs, InvalidArgument for too many links.
func Resolve(name string, look func(string) (fs.FileInfo, error), read func(string) (string, error)) (string, error) {
	left, at := strings.Split(name, "/"), "."
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		info, err := look(next)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err != nil {
			return "", err
		}
		target, err := read(next)
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", cove.Errorf(cove.InvalidArgument, "%.200q has more than %d symbolic links", name, maxLinks)
		}
		if path.IsAbs(target) {
			at = "."
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return at, nil
}

// opaque is the extended attribute of a directory that hides what is below, with the value "y".
const opaque = "user.overlay.opaque"

// Opaque reports whether a directory of changes hides what is below it.
func Opaque(dir string) bool {
	var value [8]byte
	n, err := unix.Lgetxattr(dir, opaque, value[:])
	return err == nil && string(value[:n]) == "y"
}

// MakeOpaque has a directory of changes hide what is below it.
func MakeOpaque(dir string) error {
	if err := unix.Lsetxattr(dir, opaque, []byte("y"), 0); err != nil {
		return &fs.PathError{Op: "setxattr", Path: dir, Err: err}
	}
	return nil
}

// Whiteout reports whether a file of changes, by its mode and device, stands for one that went.
func Whiteout(mode uint32, device uint64) bool {
	return mode&unix.S_IFMT == unix.S_IFCHR && device == 0
}

func whiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && Whiteout(st.Mode, st.Rdev)
}
