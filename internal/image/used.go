package image

import (
	"os"
	"path/filepath"
	"time"
)

// use records that an image is used now.
func (s *Store) use(digest string) {
	now := time.Now()
	_ = os.Chtimes(filepath.Join(s.imageDir(digest), recordName), now, now) // only the order in which images go
}

// usedAt returns when an image was used or added last.
func (s *Store) usedAt(img Image) time.Time {
	if info, err := os.Stat(filepath.Join(s.imageDir(img.Digest), recordName)); err == nil {
		return info.ModTime().UTC().Truncate(time.Second)
	}
	return img.Added
}

// askedName marks an image that a request has named by a digest: a sandbox may have no other name for it.
const askedName = "asked"

// asked marks an image so.
func (s *Store) asked(digest string) {
	f, err := os.OpenFile(filepath.Join(s.imageDir(digest), askedName), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		f.Close()
	}
}
