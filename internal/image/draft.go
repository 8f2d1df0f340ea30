package image

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	layerfiles "github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// Draft is a layer that a command of a build writes. It lies on a file system of its own, which bounds its bytes and
// inodes. Where the kernel cannot do that, it lies on the disk of the store, and Check looks at what is left there.
type Draft struct {
	Layer    string // of engine.MakeLayer
	FileSize int64  // most bytes of one file
	store    *Store
	dir      string
	image    disk.Image
	size     disk.Size // zero: not bounded
	room     growing
}

// Draft makes an empty layer in a new directory of Room. The caller must call its End. Errors: StorageFull.
func (b Builds) Draft(ctx context.Context, dir string) (*Draft, error) {
	d := &Draft{store: b.store, dir: dir, FileSize: layerfiles.Left(b.store.dir).Bytes, image: draftIn(dir),
		room: growing{s: b.store}}
	err := storage(os.Mkdir(d.dir, 0o700), "make a layer")
	if err == nil {
		err = d.bound(ctx)
	}
	if d.Layer = filepath.Join(d.image.Dir, "layer"); d.size.Bytes == 0 {
		d.Layer = filepath.Join(dir, "layer")
	}
	if err == nil {
		err = engine.MakeLayer(d.Layer)
	}
	if err != nil {
		return nil, errors.Join(err, d.End())
	}
	return d, nil
}

// bound mounts a file system where that is possible, and reserves its room. Layers of earlier builds make room.
func (d *Draft) bound(ctx context.Context) error {
	const bytes, inodes = 64 << 20, 1000 // least
	var size disk.Size
	err := d.room.fits(ctx, 0, func() (err error) {
		d.room.disk, err = hostdisk.At(d.store.home, d.dir).Reserve(func(r hostdisk.Room) (int64, error) {
			left := layerfiles.Left(d.dir)
			left.Bytes = min(left.Bytes, r.Left())
			if left.Bytes < bytes || left.Files < inodes {
				return 0, cove.Errorf(cove.StorageFull, "the disk of the images has no room for what a command writes").
					WithHint("free some space or inodes, or run \"cove image prune\"")
			}
			// The disk has to hold the draft and its copy; a fifth is for the file system itself.
			size.Bytes = min(d.store.limits.Bytes, left.Bytes/5*2)
			size.Inodes = min(d.store.limits.Entries, left.Files, size.Bytes/4096)
			return size.Bytes / 4 * 5, nil
		})
		return err
	})
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if err = d.store.drafts.Create(ctx, d.image, size); err == nil {
		d.size = size
	} else if code := cove.ErrorCode(err); code != cove.StorageFull && code != cove.Canceled {
		d.store.log.Debug("what a command of a build writes is only watched", "error", err)
		err = nil
	}
	return err
}

// Check refuses a layer that fills its disk, or has filled that of the store. Errors: LimitReached, StorageFull.
func (d *Draft) Check() error {
	if d.size.Bytes == 0 {
		return layerfiles.Spare(d.dir)
	}
	used, err := d.image.Used()
	if err == nil && (used.Room < 4<<20 || used.InodesLeft == 0) { // a large write fails before the last blocks are used
		err = cove.Errorf(cove.LimitReached, "the command has filled its disk (limit %d MiB and %d files)",
			d.size.Bytes>>20, d.size.Inodes).WithHint("have it write less; or free some of the disk of the images, if the " +
			"limit is less than that of images")
	}
	return cmp.Or(err, layerfiles.Spare(d.dir)) // which caches may have filled
}

// Take moves the layer to a new directory of Room. Errors: those of layer.Take.
func (d *Draft) Take(ctx context.Context, to string) error {
	if d.size.Bytes == 0 {
		return storage(os.Rename(d.Layer, to), "take a layer")
	}
	if err := engine.MakeLayer(to); err != nil {
		return err
	}
	return layerfiles.Take(ctx, engine.Changes(d.Layer), engine.Changes(to), Builds{d.store}.Most(), true)
}

// End removes what was not taken.
func (d *Draft) End() error {
	defer d.room.end()
	return errors.Join(d.image.Unmount(), d.store.files.Remove(d.dir))
}
