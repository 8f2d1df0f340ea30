package layer

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Clone makes a tree with the files of a stack. to must not exist.
func Clone(from rootfs.Stack, to string) error {
	v, err := from.Open()
	if err != nil {
		return failure(err, "open a root filesystem")
	}
	defer v.Close()
	if err = os.Mkdir(to, 0o700); err == nil {
		err = newCloning().merged(v, from[0], ".", to)
	}
	return failure(err, "copy a root filesystem")
}

// Link makes a layer with the files of another. to must not exist.
func Link(changes, to string) error {
	err := os.Mkdir(to, 0o700)
	if err == nil {
		err = newCloning().directory(changes, to)
	}
	return failure(err, "copy a layer")
}

// cloning works on several directories at a time: what takes its time is the kernel's work on each entry.
type cloning struct{ places chan struct{} }

func newCloning() cloning { return cloning{make(chan struct{}, runtime.GOMAXPROCS(0))} }

// merged fills a directory with links to the files of a directory of a view, whose lowest tree is base.
func (c cloning) merged(v *rootfs.View, base, name, to string) error {
	parts := v.Parts(name)
	if len(parts) == 1 && parts[0] == filepath.Join(base, name) {
		return c.directory(parts[0], to)
	}
	names, err := v.Names(name, 0)
	if err != nil {
		return err
	}
	for _, entry := range names {
		from, dst := path.Join(name, entry), filepath.Join(to, entry)
		info, err := v.Lstat(from)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err = os.Mkdir(dst, 0o700); err == nil {
				err = c.merged(v, base, from, dst)
			}
		} else {
			var dir string
			if dir, err = v.Part(from); err == nil {
				err = os.Link(filepath.Join(dir, from), dst)
			}
		}
		if err != nil {
			return err
		}
	}
	return likewise(parts[0], to)
}

// directory fills a directory with links to the files of another, and gives it its properties.
func (c cloning) directory(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	var below errgroup.Group
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if !e.IsDir() {
			err = os.Link(src, dst)
		} else if err = os.Mkdir(dst, 0o700); err == nil {
			select {
			case c.places <- struct{}{}:
				below.Go(func() error {
					defer func() { <-c.places }()
					return c.directory(src, dst)
				})
			default:
				err = c.directory(src, dst)
			}
		}
		if err != nil {
			break
		}
	}
	err = cmp.Or(err, below.Wait())
	if err == nil && rootfs.Opaque(from) {
		err = rootfs.MakeOpaque(to)
	}
	// The properties come last: entries need a directory that lets its owner in, and change its time.
	if err != nil {
		return err
	}
	return likewise(from, to)
}
