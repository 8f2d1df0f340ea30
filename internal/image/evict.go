package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
)

// The images of the store have a bound together (Options.Most), and leave the floor of the machine's disk. Images that
// a user has pulled or imported stay until the user removes them. Caches and layers of builds make room first, then
// images that come back by themselves, when no process holds them: the ones unpacked because a request named their
// archive, and those without a name that no request has named by a digest. The ones that were used the longest ago go
// first.

// growing is an image that is being unpacked, with what it has reserved.
type growing struct {
	s    *Store
	temp *temp // nil: it does not count among the images
	disk *hostdisk.Reservation
	most int64 // bytes of its layers as they are packed
}

// grow reserves the room of an image that is unpacked into a temporary directory; packed is the size of its layers. The
// caller must call its end.
func (s *Store) grow(ctx context.Context, t *temp, packed int64) (*growing, error) {
	g := &growing{s: s, temp: t, most: packed}
	err := g.fits(ctx, packed, func() (err error) {
		g.disk, err = hostdisk.At(s.home, s.dir).Reserve(hostdisk.Fitting("the image", packed))
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// to refuses that the image has a number of bytes by now, and reserves those of the next step, as far as there are.
func (g *growing) to(ctx context.Context, bytes, step int64) error {
	return g.fits(ctx, max(g.most, bytes), func() error {
		return g.disk.Change(func(r hostdisk.Room) (int64, error) {
			more := max(0, g.most-bytes)
			if err := r.Fits("the rest of the image", more); more > 0 && err != nil {
				return 0, err
			}
			return min(max(step, more), r.Left()), r.CheckShort()
		})
	})
}

func (g *growing) end() { g.disk.End() }

// fits refuses that the image has a number of bytes, within the bound of all images and where the disk's refuses it.
// Images that come back make room.
func (g *growing) fits(ctx context.Context, bytes int64, disk func() error) error {
	for {
		err := g.s.claim(ctx, g.temp, bytes)
		if err == nil {
			err = disk()
		}
		if cove.ErrorCode(err) != cove.StorageFull {
			return err
		}
		if gone, e := g.s.evict(); e != nil || !gone {
			return errors.Join(err, e)
		}
	}
}

// claim counts the image in a temporary directory with a number of bytes, if all fit together. The file of the
// directory's lock has them.
func (s *Store) claim(ctx context.Context, t *temp, bytes int64) error {
	if s.most == 0 || t == nil {
		return nil
	}
	l, err := lockFile(ctx, filepath.Join(s.dir, "room.lock"), filelock.Exclusive)
	if err != nil {
		return err
	}
	defer l.Close()
	sum, err := s.taken(t)
	if err != nil {
		return err
	}
	if sum+bytes > s.most {
		return cove.Errorf(cove.StorageFull, "the images of the store have %d MiB, and with this one they would have more "+
			"than %d (disk.images_mb)", sum>>20, s.most>>20).
			WithHint("remove some: \"cove image list\", \"cove image remove NAME\"; or raise it in the configuration")
	}
	_, err = t.lock.WriteAt(fmt.Appendf(nil, "%20d\n", bytes), 0) // of one length
	return storage(err, "count the image")
}

// taken returns the bytes of all images, and of caches and layers of builds, but one image that is unpacked, with those
// that others unpack. Files that images share with builds and with their base count once.
func (s *Store) taken(but *temp) (sum int64, err error) {
	digests, err := s.digests()
	if err != nil {
		return 0, err
	}
	for _, digest := range digests {
		if img, err := s.image(digest); err == nil {
			sum += ownBytes(s, img)
		}
	}
	built, err := used(s)
	if err != nil {
		return 0, err
	}
	for _, u := range built {
		sum += u.bytes
	}
	locks, err := filepath.Glob(filepath.Join(s.dir, "tmp", "*"+lockSuffix))
	if err != nil {
		return 0, err
	}
	for _, path := range locks {
		text, err := os.ReadFile(path)
		if but != nil && path == but.lock.Name() || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var bytes int64
		if _, e := fmt.Sscan(string(text), &bytes); err == nil && e == nil {
			sum += bytes
		}
	}
	return sum, nil
}

// evict removes the image that comes back and was used the longest ago, or first a cache or layer of builds, and
// reports whether there was one.
func (s *Store) evict() (bool, error) {
	if gone, err := evictUsed(s); gone || err != nil {
		return gone, err
	}
	all, err := s.List(context.Background())
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(all, func(a, b Image) int { return a.Used.Compare(b.Used) })
	for _, img := range all {
		idx, err := s.index()
		if err != nil {
			return false, err
		}
		if !idx.comesBack(img.Digest) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.imageDir(img.Digest), askedName)); err == nil {
			continue
		}
		if gone, err := s.evictOne(img.Digest); gone || err != nil {
			return gone, err
		}
	}
	return false, nil
}

// evictOne removes an image that comes back, unless it is in use or was named meanwhile: names are added
// under its lock.
func (s *Store) evictOne(digest string) (bool, error) {
	lock, err := s.lockAlone(digest)
	if err == filelock.ErrHeld {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	idx, err := s.index()
	if err != nil || !idx.comesBack(digest) {
		return false, err
	}
	if err := s.update(context.Background(), func(i *index) error { i.drop(digest); return nil }); err != nil {
		return false, err
	}
	s.log.Info("image removed, to make room", "digest", digest)
	return true, s.delete(digest, &Removed{})
}
