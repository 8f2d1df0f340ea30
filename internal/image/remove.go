package image

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Removed reports the effects of a removal.
type Removed struct {
	Names  []string // removed names
	Images []Image  // images whose files were removed
	Above  int      // images built on one that has lost its last name; its files stay
	Temps  int      // temporary directories of crashes
	Freed  int64    // bytes of files
}

// List returns the images of the store, the newest first, those without a name included.
func (s *Store) List(ctx context.Context) ([]Image, error) {
	idx, err := s.index()
	if err != nil {
		return nil, err
	}
	digests, err := s.digests()
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, digest := range digests {
		img, err := s.image(digest)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			s.log.Warn("image skipped in the list", "digest", digest, "err", err)
			continue
		}
		all = append(all, s.shown(*img, idx))
	}
	slices.SortFunc(all, func(a, b Image) int { return b.Added.Compare(a.Added) })
	return all, nil
}

// Remove removes a name, and with the last name the image; a digest removes all names. The files of an image on which
// others were built stay until Prune finds none of those. Errors: ImageMissing, Conflict (held, see [Store.Hold]).
func (s *Store) Remove(ctx context.Context, ref string) (Removed, error) {
	t, err := parse(ref)
	if err != nil {
		return Removed{}, err
	}
	if t.kind == fromHost || t.kind == fromDir {
		return Removed{}, cove.Errorf(cove.InvalidArgument, "%s is not in the store", t)
	}
	digest, err := s.find(t)
	if cove.ErrorCode(err) == cove.ImageMissing {
		return Removed{}, notStored(t).WithHint("\"cove image list\" lists what is there")
	}
	if err != nil {
		return Removed{}, err
	}
	key := t.ref
	if t.kind.OnDisk() {
		key = s.fileKey(t)
	}
	lock, err := s.lockAlone(digest)
	held := err == filelock.ErrHeld
	if err != nil && !held {
		return Removed{}, err
	}
	defer lock.Close() // nil if it is held
	sandboxes, images := PinsOf(s).of(digest)
	below := held && sandboxes == 0 && images > 0 // others are built on it: its names go, and its files stay
	var out Removed
	last := true
	err = s.update(ctx, func(i *index) error {
		if t.kind == fromDigest {
			out.Names = i.namesOf(digest)
		} else {
			out.Names = []string{t.String()}
			i.untag(digest, key)
			last = !i.keeps(digest)
		}
		switch {
		case last && held && !below:
			return cove.Errorf(cove.Conflict, "image %s is in use", t).
				WithHint("stop what runs on it (\"cove ps\"), destroy sandboxes that keep changes to it, and try again")
		case last:
			i.drop(digest)
		}
		return nil
	})
	if err != nil {
		return Removed{}, err
	}
	switch {
	case last && below:
		out.Above = images
	case last:
		err = s.delete(digest, &out)
	}
	return out, err
}

func (i *index) untag(digest, key string) {
	if i.Names[key].Digest == digest {
		delete(i.Names, key)
	}
	if i.Files[key].Digest == digest {
		delete(i.Files, key)
	}
}

// lockAlone locks an image that no process holds and nothing pins. Otherwise the error is filelock.ErrHeld.
func (s *Store) lockAlone(digest string) (*os.File, error) {
	if err := s.ensure(); err != nil {
		return nil, err
	}
	lock, err := filelock.Open(s.digestLock(digest), filelock.Exclusive)
	switch {
	case err == filelock.ErrHeld:
		return nil, err
	case err != nil:
		return nil, storage(err, "lock the image")
	}
	if sandboxes, images := PinsOf(s).of(digest); sandboxes+images > 0 {
		lock.Close()
		return nil, filelock.ErrHeld
	}
	return lock, nil
}

// delete removes an image's files, under its exclusive lock: one rename takes it out, and the rest may be interrupted.
func (s *Store) delete(digest string, out *Removed) error {
	img, err := s.image(digest)
	if err != nil {
		img = &Image{Digest: digest} // damaged: its record is unreadable
	}
	own := ownBytes(s, img)
	t, err := s.newTemp()
	if err != nil {
		return err
	}
	defer s.discard(t)
	err = os.Rename(s.imageDir(digest), filepath.Join(t.dir, "removed"))
	s.mu.Lock()
	delete(s.known, digest)
	s.mu.Unlock()
	switch {
	case err == nil:
		PinsOf(s).unpinBelow(img)
		out.Images = append(out.Images, *img)
		out.Freed += own
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	// A process that waits for this lock checks afterwards whether its file still exists.
	_ = os.Remove(s.digestLock(digest))
	return storage(err, "remove the image")
}

// Prune removes images that neither a name nor an unchanged file keeps, and the remains of crashes. It keeps held
// images, and those for which keepInUse, if not nil, returns true.
func (s *Store) Prune(ctx context.Context, keepInUse func(digest string) bool) (Removed, error) {
	var out Removed
	var err error
	if out.Temps, out.Freed, err = s.sweep(); err != nil {
		return out, storage(err, "remove what was left behind")
	}
	freed, err := cachesOf(s).prune()
	if out.Freed += freed; err != nil {
		return out, storage(err, "remove caches of builds")
	}
	if err := pruneImages(ctx, s, keepInUse, &out); err != nil {
		return out, err
	}
	freed, err = pruneLayers(s) // after the images that have their files
	out.Freed += freed
	return out, storage(err, "remove layers of builds")
}

// pruneImages removes images, and names of missing ones.
func pruneImages(ctx context.Context, s *Store, keepInUse func(digest string) bool, out *Removed) error {
	digests, err := s.digests()
	if err != nil || len(digests) == 0 {
		return err
	}
	if err := s.pruneIndex(ctx, digests, out); err != nil {
		return err
	}
	for before := -1; before < len(out.Images); { // until none was the last that is built on another
		before = len(out.Images)
		if digests, err = s.digests(); err != nil {
			return err
		}
		for _, digest := range digests {
			if err := ctx.Err(); err != nil {
				return cove.Errorf(cove.Canceled, "pruning was canceled: %w", err)
			}
			if keepInUse != nil && keepInUse(digest) {
				continue
			}
			if err := s.pruneImage(digest, out); err != nil {
				return err
			}
		}
	}
	return nil
}

// pruneIndex removes names of missing images, and changed files.
func (s *Store) pruneIndex(ctx context.Context, digests []string, out *Removed) error {
	return s.update(ctx, func(i *index) error {
		maps.DeleteFunc(i.Files, func(name string, f filed) bool {
			if now, err := stampOf(f.Path); err == nil && now == f.Stamp {
				return false
			}
			out.Names = append(out.Names, name)
			return true
		})
		maps.DeleteFunc(i.Names, func(name string, n named) bool {
			if slices.Contains(digests, n.Digest) {
				return false
			}
			if _, err := os.Lstat(s.imageDir(n.Digest)); err == nil {
				return false // added meanwhile
			}
			out.Names = append(out.Names, familiar(name))
			return true
		})
		return nil
	})
}

// pruneImage removes one image if nothing keeps it. Images being made or used are locked. A name is added under that
// lock, so that the check is final.
func (s *Store) pruneImage(digest string, out *Removed) error {
	lock, err := s.lockAlone(digest)
	if err == filelock.ErrHeld {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	idx, err := s.index()
	if err != nil || idx.keeps(digest) {
		return err
	}
	if err := s.update(context.Background(), func(i *index) error { i.drop(digest); return nil }); err != nil {
		return err
	}
	return s.delete(digest, out)
}
