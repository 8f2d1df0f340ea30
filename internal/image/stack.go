package image

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// The files of an image that came from elsewhere are one tree. An image that was built has the layers of its steps,
// above those of its base. It pins the base, and those of its layers that builds keep: their files stay as long as it
// does (Pins).

// stackedName is the directory of an image with its own layers, which are numbered from 0 on, unless builds keep them.
const stackedName = "layers"

// keptIn returns the directory of a store for the layers that builds keep. While one runs, it holds a lock beside it.
func keptIn(s *Store) string { return filepath.Join(s.dir, "build") }

// maxStack is the most directories of an image: programs look into each for a file that is not there. An image of more
// is one tree.
const maxStack = 40

// stackOf returns the directories of an image. Errors: fs.ErrNotExist where a base, or a layer that builds keep, is
// missing.
func stackOf(s *Store, img *Image) (all rootfs.Stack, err error) {
	if img.Base == "" && img.Layers == 0 {
		return rootfs.Stack{filepath.Join(s.imageDir(img.Digest), rootfsName)}, nil
	}
	if img.Base != "" {
		base, err := s.image(img.Base)
		if err == nil {
			all, err = stackOf(s, base)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range img.Layers {
		dir := ownLayer(s, img, i)
		if _, err := os.Lstat(dir); err != nil {
			return nil, err
		}
		all = append(all, dir)
	}
	return all, nil
}

// ownLayer returns the directory of a layer of an image's own.
func ownLayer(s *Store, img *Image, i int) string {
	if len(img.Kept) > 0 {
		return engine.Changes(filepath.Join(keptIn(s), img.Kept[i]))
	}
	return filepath.Join(s.imageDir(img.Digest), stackedName, strconv.Itoa(i))
}

// ownBytes returns the bytes of an image that it shares neither with its base nor with builds.
func ownBytes(s *Store, img *Image) int64 {
	if img.Base != "" {
		if base, err := s.image(img.Base); err == nil {
			return img.Size - base.Size - img.KeptSize
		}
	}
	return img.Size - img.KeptSize
}
