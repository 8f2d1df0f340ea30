package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
)

// pinsName is the directory, beside the tree of an image, with a file for each long-lived sandbox that keeps changes to
// the tree. Such an image stays, as the changes are worth nothing without it.
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

func (p Pins) any(digest string) bool {
	pins, err := os.ReadDir(filepath.Join(p.store.imageDir(digest), pinsName))
	return err == nil && len(pins) > 0
}
