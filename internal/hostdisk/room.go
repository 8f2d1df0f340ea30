// Package hostdisk owns the room on the disks of this machine below Cove's home: the floor of free space that Cove
// leaves alone, and reservations of the rest.
//
// Whatever writes much reserves it first, so that several writers are judged by their sum, also those of different
// processes. A reservation is a file below "reserved" of the home, with a number of bytes that are still to be written.
// Its process holds the file's lock; the next reservation removes files without one.
package hostdisk

import (
	"fmt"

	"github.com/cove-sandbox/cove"
)

// Room is that of a disk of this machine, in bytes.
type Room struct{ Free, Total int64 }

// Floor returns the bytes that Cove leaves free: 1 GiB, or a twentieth of a smaller disk.
func (r Room) Floor() int64 { return min(1<<30, r.Total/20) }

// Left returns the bytes that may be written; it is negative where the disk is short.
func (r Room) Left() int64 { return r.Free - r.Floor() }

// Short reports whether the disk has less room than its floor.
func (r Room) Short() bool { return r.Left() < 0 }

// CheckShort refuses to write to a disk that is short. Errors: StorageFull.
func (r Room) CheckShort() error {
	if !r.Short() {
		return nil
	}
	return r.full("")
}

// Fits refuses bytes that would take what Cove leaves free; what has them. Errors: StorageFull.
func (r Room) Fits(what string, bytes int64) error {
	if bytes <= r.Left() {
		return nil
	}
	return r.full(fmt.Sprintf("%s has %d MiB, and ", what, bytes>>20))
}

func (r Room) full(why string) error {
	return cove.Errorf(cove.StorageFull, "%sthe disk of this machine has %d MiB left, of which Cove leaves %d alone", why,
		max(0, r.Free)>>20, r.Floor()>>20).WithHint("free some space; \"cove prune\" shows sandboxes that can go")
}
