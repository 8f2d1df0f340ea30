package repos

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/linux/disk"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A workspace with a disk of its own has its checkout, home and hidden repository on it. Its record, the image and the
// repository of imported work lie beside it. Checkouts within a sandbox are on that sandbox's disk while they are made,
// too.

// Tree is hostdisk.Tree.
type Tree func(ctx context.Context, dir string) (bytes, files int64, err error)

// disks are the disks of workspaces: the file systems that bound them.
type disks struct {
	catalog
	*uploads
	room      hostdisk.Disk // of the machine
	log       *slog.Logger
	templates disk.Templates
	tree      Tree

	trying sync.Mutex
	bounds bool // images are possible; guarded by trying

	tidying sync.Mutex // held while imported work is packed anew

	uses sync.Map // of *sync.RWMutex, by the ids of workspaces
}

// use returns what is held while a disk must stay mounted although another may have the sandbox's turn, and exclusively
// while it is unmounted or copied.
func (d *disks) use(id cove.SandboxID) *sync.RWMutex {
	u, _ := d.uses.LoadOrStore(id, new(sync.RWMutex))
	return u.(*sync.RWMutex)
}

var _ workspace.Disks = (*disks)(nil)

func imageIn(dir string) disk.Image {
	return disk.Image{File: filepath.Join(dir, imageFile), Dir: filepath.Join(dir, diskDir), Base: filepath.Dir(dir)}
}

// Bounds implements workspace.Disks.
func (d *disks) Bounds(ctx context.Context) error {
	d.trying.Lock()
	defer d.trying.Unlock()
	if d.bounds {
		return nil
	}
	err := disk.Try(ctx, d.workspaces)
	if err == nil {
		d.bounds = true
		return nil
	}
	why := cove.Errorf(cove.Unsupported, "the kernel cannot bound what long-lived sandboxes write here: %w", err)
	if hint := cove.ErrorHint(err); hint != "" {
		why = why.WithHint("%s", hint)
	}
	return why
}

// newDisk is the disk of a workspace in the making.
type newDisk struct {
	*disks
	dir  string // of the workspace
	size workspace.Disk
	kind workspace.DiskKind
	held *hostdisk.Reservation // of the machine's disk, for the checkout; nil before it is weighed
}

// add gives the workspace at dir a disk.
func (d *disks) add(ctx context.Context, dir string, size workspace.Disk) (newDisk, error) {
	n := newDisk{disks: d, dir: dir, size: size}
	if size.Bytes == 0 {
		return n, nil
	}
	if err := d.refuseShort(); err != nil {
		return n, err
	}
	n.kind = workspace.DiskWatched
	if err := d.Bounds(ctx); err != nil {
		d.log.Debug("a disk is only watched", "dir", dir, "error", err)
		return n, nil
	}
	n.kind = workspace.DiskImage
	return n, d.templates.Create(ctx, imageIn(dir), disk.Size(size))
}

// files returns where the workspace's files are, below its directory.
func (n newDisk) files() string {
	if n.kind == workspace.DiskImage {
		return diskDir
	}
	return ""
}

// explain turns the error of a disk that became full while the workspace was made into that of a disk too small for it.
func (n newDisk) explain(err error) error {
	if n.kind != workspace.DiskImage || cove.ErrorCode(err) != cove.StorageFull {
		return err
	}
	used, e := imageIn(n.dir).Used()
	if e != nil || used.Room > n.size.Bytes/50+1<<20 && used.InodesLeft > n.size.Inodes/50 {
		return err // the machine's own
	}
	return n.tooSmall()
}

// reserve refuses a checkout that does not fit on the disk, and reserves its room on the machine's own, where the image
// would take it, and lose it when it is written out.
func (n *newDisk) reserve(bytes, files int64) (err error) {
	if n.size.Bytes > 0 && (bytes > n.size.Bytes || files > n.size.Inodes && n.size.Inodes > 0) {
		return n.tooSmall()
	}
	judge := hostdisk.Fitting("the checkout", bytes)
	if n.held != nil {
		return n.held.Change(judge)
	}
	n.held, err = n.room.Reserve(judge)
	return err
}

func (n newDisk) tooSmall() error {
	return cove.Errorf(cove.TooLarge, "the work does not fit on the sandbox's disk, which has %d MiB and %d files",
		n.size.Bytes>>20, n.size.Inodes).
		WithHint("give it more: --disk SIZE, --inodes N (limits.disk_mb, limits.inodes)")
}

// mounted makes sure that a workspace's disk is mounted, as it is not while the sandbox is stopped.
func (d *disks) mounted(ctx context.Context, r record) error {
	if r.Disk != workspace.DiskImage {
		return nil
	}
	return imageIn(d.directory(r.ID)).Mount(ctx)
}

// checkCheckout refuses a disk on which no checkout is: its image was copied while it was in use, or is another's.
func (d *disks) checkCheckout(r record) error {
	dir := d.directory(r.ID)
	if r.Disk != workspace.DiskImage || r.Bound != "" || r.Within != "" {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, diskDir, checkoutDir)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	i := imageIn(dir)
	return cove.Errorf(cove.Corrupt, "there is no checkout on the disk of the sandbox, which is in %s", i.File).
		WithHint("that is so when the file was copied while the sandbox ran; what was copied of its files beside is in %s, "+
			"where the disk is mounted while it is in use; a copy with everything is made by cove backup FILE", i.Dir)
}

// Resize implements workspace.Disks.
func (d *disks) Resize(ctx context.Context, id cove.SandboxID, to workspace.Disk, runs bool) error {
	r, err := d.read(id)
	if err != nil {
		return err
	}
	switch r.Disk {
	case workspace.DiskImage:
	case workspace.DiskWatched:
		return nil // what watches it looks at the record of the sandbox
	default:
		return cove.Errorf(cove.Conflict, "the sandbox was made by an earlier version of Cove; nothing holds its disk to "+
			"a size").WithHint("push or apply its work, destroy it, and make a new one with --disk SIZE")
	}
	i := imageIn(d.directory(id))
	if runs {
		return i.Resize(ctx, to.Bytes)
	}
	if err := i.Unmount(); err != nil {
		return err
	}
	if err = i.Released(ctx); err == nil {
		err = i.Resize(ctx, to.Bytes)
	}
	return errors.Join(err, i.Mount(context.WithoutCancel(ctx)))
}

// removeWorkspace removes a workspace's directory, with its disk.
func removeWorkspace(dir string) error {
	return errors.Join(imageIn(dir).Unmount(), removeAll(dir))
}

// freeWithin removes checkouts on a sandbox's disk whose workspace is gone: their making was killed.
func (d *disks) freeWithin(host record) error {
	if host.Files == "" {
		return nil
	}
	dir := filepath.Join(d.directory(host.ID), host.Files, withinDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageFull("read "+dir, err)
	}
	var errs []error
	for _, e := range entries {
		_, is := os.Lstat(filepath.Join(d.workspaces, e.Name()))
		_, comes := os.Lstat(filepath.Join(d.workspaces, coming+e.Name()))
		if errors.Is(is, fs.ErrNotExist) && errors.Is(comes, fs.ErrNotExist) {
			errs = append(errs, removeAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Full implements workspace.Disks.
func (d *disks) Full(id cove.SandboxID) (bool, error) {
	r, err := d.read(id)
	if err != nil || r.Disk != workspace.DiskImage {
		return false, err
	}
	used, err := imageIn(d.directory(id)).Used()
	return err == nil && used.Full(), err
}

// Used implements workspace.Disks.
func (d *disks) Used(ctx context.Context, id cove.SandboxID) (workspace.Used, error) {
	r, err := d.read(id)
	if err != nil {
		return workspace.Used{}, err
	}
	u := workspace.Used{Kind: r.Disk}
	if r.Disk == workspace.DiskImage {
		used, err := d.measure(id)
		u.Bytes, u.Files, u.Unwritten = used.Bytes, used.Inodes, max(0, used.Bytes-used.Host)
		return u, err
	}
	dir := d.directory(id)
	parts := []string{dir}
	if r.Within == "" {
		parts = []string{filepath.Join(dir, checkoutDir), filepath.Join(dir, homeDir)}
	}
	if r.Layer {
		parts = append(parts, filepath.Join(dir, layerDir))
	}
	if volumes := filepath.Join(dir, volumesDir); r.Within == "" {
		if _, err := os.Lstat(volumes); err == nil { // with the first of them
			parts = append(parts, volumes)
		}
	}
	for _, part := range parts {
		bytes, files, err := hostdisk.Tree(ctx, part)
		if errors.Is(err, fs.ErrPermission) && d.tree != nil { // to this process alone
			bytes, files, err = d.tree(ctx, part)
		}
		if err != nil {
			return u, cove.Errorf(cove.Unavailable, "cannot measure the workspace of %s: %w", id, err)
		}
		u.Bytes, u.Files = u.Bytes+bytes, u.Files+files
	}
	if r.Within != "" || r.Bound != "" {
		return u, nil
	}
	bytes, files, err := unlinked(ctx, "/proc", parts[0])
	if err != nil {
		return u, storageFull("look for removed files of "+string(id), err)
	}
	u.Bytes, u.Files = u.Bytes+bytes, u.Files+files
	return u, nil
}

// measure measures the disk of a workspace.
func (d *disks) measure(id cove.SandboxID) (disk.Use, error) {
	used := d.use(id)
	used.RLock()
	defer used.RUnlock()
	i := imageIn(d.directory(id))
	switch is, err := i.Mounted(); {
	case err != nil:
		return disk.Use{}, err
	case is:
		return i.Used()
	}
	return i.UsedAtRest()
}

// Still implements workspace.Disks.
func (d *disks) Still(ctx context.Context, id cove.SandboxID, runs bool, f func() error) error {
	r, err := d.read(id)
	if err != nil {
		return err
	}
	if r.Disk != workspace.DiskImage {
		return f()
	}
	using := d.use(id)
	using.Lock()
	defer using.Unlock()
	i := imageIn(d.directory(id))
	is, err := i.Mounted()
	if err != nil {
		return err
	}
	if is && runs {
		return i.Quiet(f)
	}
	if err := i.Rest(ctx); err != nil {
		return err
	}
	return f()
}

// Device implements workspace.Disks.
func (d *disks) Device(id cove.SandboxID) (string, error) {
	r, err := d.read(id)
	if err != nil {
		return "", err
	}
	if r.Disk != workspace.DiskImage {
		return "", cove.Errorf(cove.Unsupported, "the workspace of %s is on a disk that others use, too", id)
	}
	return imageIn(d.directory(id)).Device()
}

// Free implements workspace.Disks.
func (d *disks) Free() (hostdisk.Room, error) {
	return d.room.Room()
}

// refuseShort refuses a new disk when the host's own is nearly full: what is on others can still grow.
func (d *disks) refuseShort() error {
	r, err := d.Free()
	if err == nil {
		err = r.CheckShort()
	}
	return err
}
