package layer

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Clone makes a tree with the files of another. to must not exist.
func Clone(from, to string) error {
	err := os.Mkdir(to, 0o700)
	if err == nil {
		err = cloning{make(chan struct{}, runtime.GOMAXPROCS(0))}.directory(from, to)
	}
	return failure(err, "copy a root filesystem")
}

// cloning works on several directories at a time: what takes its time is the kernel's work on each entry.
type cloning struct{ places chan struct{} }

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
	// The properties come last: entries need a directory that lets its owner in, and change its time.
	if err := cmp.Or(err, below.Wait()); err != nil {
		return err
	}
	return likewise(from, to)
}
