package repos

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/linux/disk"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// keep leaves the checkout of a workspace as a plain directory at its place, and removes the rest. Each step can be
// done again, since a killed process leaves any of them.
func (d *disks) keep(ctx context.Context, r record, config string) error {
	dir := d.directory(r.ID)
	if r.Kept { // the work is off the disk, which may be gone
		return d.kept(dir, r)
	}
	if r.Disk == workspace.DiskImage {
		if err := d.copyOff(ctx, dir, r, config); err != nil {
			return err
		}
	} else if err := disarm(filepath.Join(d.filesIn(dir, r), checkoutDir), r, d.filesIn(dir, r), config); err != nil {
		return err
	}
	r.Kept = true
	if err := writeRecord(dir, r); err != nil {
		return err
	}
	return d.kept(dir, r)
}

// copyOff copies a checkout off its disk, with its repository and the way to the objects that it borrows.
func (d *disks) copyOff(ctx context.Context, dir string, r record, config string) error {
	if err := d.mounted(ctx, r); err != nil {
		return err
	}
	i, to := imageIn(dir), filepath.Join(dir, keepingDir)
	err := d.refuseCopy(ctx, i)
	if err == nil {
		err = i.CopyTo(ctx, to, removeAll, homeDir, layerDir, volumesDir, withinDir)
	}
	if err == nil {
		err = disarm(filepath.Join(to, checkoutDir), r, d.filesIn(dir, r), config)
	}
	if err == nil {
		err = atomicfile.SyncAll(to) // the image, which has it until then, goes next
	}
	if err != nil {
		return errors.Join(cove.Errorf(cove.ErrorCode(err), "cannot copy the work off the sandbox's disk: %w", err).
			WithHint("free some space, or remove the sandbox without keeping its work"), removeAll(to))
	}
	return nil
}

// refuseCopy refuses to copy work off a disk when that would take what Cove leaves alone of the host's.
func (d *disks) refuseCopy(ctx context.Context, i disk.Image) error {
	used, err := i.Used()
	if err != nil {
		return err
	}
	room, err := d.Free()
	if err != nil || used.Bytes <= room.Left() {
		return err
	}
	need := used.Bytes
	for _, name := range []string{homeDir, layerDir, volumesDir, withinDir} { // which are not copied
		bytes, _, err := hostdisk.Tree(ctx, filepath.Join(i.Dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return storageFull("measure what a disk holds", err)
		}
		need -= bytes
	}
	if need <= room.Left() {
		return nil
	}
	return cove.Errorf(cove.StorageFull, "the work has %d MiB, and the disk of this machine has %d left, of which Cove "+
		"leaves %d alone", need>>20, room.Free>>20, room.Floor()>>20)
}

// keptIn returns the directory with the work of a workspace that was kept; empty if there is none.
func (c catalog) keptIn(dir string, r record) string {
	if !r.Kept {
		return ""
	}
	for _, files := range []string{filepath.Join(dir, keepingDir), c.filesIn(dir, r)} {
		in := filepath.Join(files, checkoutDir)
		if _, err := os.Lstat(in); !errors.Is(err, fs.ErrNotExist) {
			return in
		}
	}
	return ""
}

// kept removes what a kept workspace does not need.
func (d *disks) kept(dir string, r record) error {
	err := removeAll(filepath.Join(dir, importDir))
	if r.Disk != workspace.DiskImage {
		for _, name := range []string{homeDir, layerDir, volumesDir} {
			err = errors.Join(err, removeAll(filepath.Join(dir, name)))
		}
		return err
	}
	i := imageIn(dir)
	if err = errors.Join(err, i.Unmount()); err != nil {
		return err
	}
	// os.Rename refuses to replace a directory, also the empty one at which the disk was mounted.
	if e := unix.Rename(filepath.Join(dir, keepingDir), i.Dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
		return storageFull("keep the work", e)
	}
	if e := atomicfile.SyncDir(dir); e != nil {
		return storageFull("keep the work", e)
	}
	if e := os.Remove(i.File); e != nil && !errors.Is(e, fs.ErrNotExist) {
		return storageFull("remove a disk", e)
	}
	return nil
}

// finishKeeping ends what a process was doing that was killed while it kept work.
func (d *disks) finishKeeping() error {
	all, err := d.records()
	if err != nil {
		return nil // an unreadable record stops nothing
	}
	var errs []error
	for _, r := range all {
		if _, err := os.Lstat(imageIn(d.directory(r.ID)).File); err == nil && r.Kept {
			errs = append(errs, d.kept(d.directory(r.ID), r))
		}
	}
	return errors.Join(errs...)
}
