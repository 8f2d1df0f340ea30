package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
)

// pinsName is the directory, beside the files of an image, with a file for each long-lived sandbox that keeps changes
// to them, and for each image that was built on it. Such an image stays: what is above it is worth nothing without it.
// A layer that builds keep has one as well, with a file for each image that has its files.
const pinsName = "pins"

// Pins keep images of a store.
type Pins struct{ store *Store }

// PinsOf returns the pins of a store.
func PinsOf(s *Store) Pins { return Pins{s} }

// Pin keeps an image, which the caller holds, from being removed until Unpin. Pins outlive their process. Errors:
// InvalidArgument, StorageFull.
func (p Pins) Pin(digest string, by cove.SandboxID) error {
	path, err := p.file(digest, by)
	if err != nil {
		return err
	}
	if err = os.Mkdir(filepath.Dir(path), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
		err = os.WriteFile(path, nil, 0o600)
	}
	return storage(err, "pin the image")
}

// Unpin takes a pin away, if it is there.
func (p Pins) Unpin(digest string, by cove.SandboxID) error {
	path, err := p.file(digest, by)
	if err != nil {
		return err
	}
	if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return storage(err, "unpin the image")
}

func (p Pins) file(digest string, by cove.SandboxID) (path string, err error) {
	if !validDigest(digest) {
		return "", cove.Errorf(cove.InvalidArgument, "%.80q is not a digest", digest)
	}
	if _, err := cove.ParseSandboxID(string(by)); err != nil {
		return "", err
	}
	return filepath.Join(p.store.imageDir(digest), pinsName, string(by)), nil
}

// pinBelow pins what an image has files of that is about to be there: its base, and layers that builds keep.
func (p Pins) pinBelow(img *Image) error {
	for _, path := range p.below(img) {
		err := os.Mkdir(filepath.Dir(path), 0o700)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			return storage(err, "pin what is below the image")
		}
	}
	return nil
}

// unpinBelow takes the pins of an image that is gone away.
func (p Pins) unpinBelow(img *Image) {
	for _, path := range p.below(img) {
		_ = os.Remove(path) // one that stays counts no more: see at
	}
}

// below returns the pins of an image.
func (p Pins) below(img *Image) (all []string) {
	name := strings.TrimPrefix(img.Digest, "sha256:")
	if img.Base != "" {
		all = append(all, filepath.Join(p.store.imageDir(img.Base), pinsName, name))
	}
	for _, key := range img.Kept {
		all = append(all, filepath.Join(keptIn(p.store), key, pinsName, name))
	}
	return all
}

// of returns how many sandboxes and how many images pin an image.
func (p Pins) of(digest string) (sandboxes, images int) { return p.at(p.store.imageDir(digest)) }

// pinned reports whether an image has the files of a layer that builds keep.
func (p Pins) pinned(layer string) bool {
	_, images := p.at(layer)
	return images > 0
}

// at returns how many pins of each kind a directory has that count.
func (p Pins) at(dir string) (sandboxes, images int) {
	pins, _ := os.ReadDir(filepath.Join(dir, pinsName)) // mostly there is none
	for _, pin := range pins {
		if by := "sha256:" + pin.Name(); !validDigest(by) {
			sandboxes++
		} else if _, err := p.store.image(by); !errors.Is(err, fs.ErrNotExist) {
			images++
		}
	}
	return sandboxes, images
}
