package sandbox

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// within calls f with the bounds of the sandboxes that a principal makes, which no upload changes meanwhile. taken is
// the upload that goes into one.
func (rd *records) within(who cove.Principal, taken string, f func(store.Room) error) error {
	g := rd.o.Grants.Of(who)
	room := store.Room{All: rd.host.Most, Own: g.Sandboxes, Disk: g.Disk}
	if g.Disk == 0 {
		return f(room)
	}
	return rd.host.Disks.Uploaded(who, taken, func(bytes int64) error {
		room.Sent = bytes
		return f(room)
	})
}

func uploadOf(q Request) string {
	if q.Repository == nil || q.Repository.Upload == nil {
		return ""
	}
	return q.Repository.Upload.ID
}

// FitsUploads refuses more bytes of uploads than the disk quota of a principal leaves beside its sandboxes and what it
// has sent. Errors: Conflict.
func (rd *records) FitsUploads(ctx context.Context, who cove.Principal, sent, more int64) error {
	room := store.Room{Disk: rd.o.Grants.Of(who).Disk, Sent: sent}
	if room.Disk == 0 {
		return nil
	}
	limits, err := rd.limitsOf(ctx, who, "")
	if err != nil {
		return err
	}
	return room.Fits(limits, more)
}

// limitsOf sums up the limits of the disks of an owner's sandboxes but one.
func (rd *records) limitsOf(ctx context.Context, who cove.Principal, but cove.SandboxID) (sum int64, err error) {
	all, err := rd.o.Store.For(who).Sandboxes(ctx)
	for _, b := range all {
		if b.Owner == who && b.ID != but {
			sum += b.Spec.Limits.Disk
		}
	}
	return sum, err
}
