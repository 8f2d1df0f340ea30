package image

import (
	"path/filepath"
	"strconv"

	"github.com/cove-sandbox/cove/internal/rootfs"
)

// The files of an image that came from elsewhere are one tree. An image that was built has the layers of its steps,
// above those of its base: it pins the base, whose files stay as long as it does (Pins).

// stackedName is the directory of an image with its own layers, which are numbered from 0 on.
const stackedName = "layers"

// maxStack is the most directories of an image: programs look into each for a file that is not there. An image of more
// is one tree.
const maxStack = 40

// stackOf returns the directories of an image. Errors: fs.ErrNotExist where a base is missing.
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
		all = append(all, ownLayer(s, img, i))
	}
	return all, nil
}

// ownLayer returns the directory of a layer of an image's own.
func ownLayer(s *Store, img *Image, i int) string {
	return filepath.Join(s.imageDir(img.Digest), stackedName, strconv.Itoa(i))
}

// ownBytes returns the bytes of an image that it does not share with its base.
func ownBytes(s *Store, img *Image) int64 {
	if img.Base != "" {
		if base, err := s.image(img.Base); err == nil {
			return img.Size - base.Size
		}
	}
	return img.Size
}
