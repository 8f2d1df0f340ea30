package sandbox

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// Change holds new values of a sandbox. Zero fields stay as they are.
type Change struct {
	Name string
	Disk int64 // bytes
}

// Change changes a sandbox, its disk first. Errors: NotFound, InvalidArgument, Conflict, StorageFull.
func (s *Sandboxes) Change(ctx context.Context, who cove.Principal, ref string, c Change) (View, error) {
	if c.Name != "" {
		if err := CheckName(c.Name); err != nil {
			return View{}, err
		}
	}
	if c == (Change{}) {
		return s.Find(ctx, who, ref)
	}
	v, err := s.find(ctx, who, ref)
	if err == nil && c.Disk != 0 {
		v, err = s.live(ctx, who, ref, "resize", func(_ *resident, record *store.Sandbox) error {
			return s.resize(ctx, record, c.Disk)
		})
	}
	switch {
	case err != nil || c.Name == "":
		return v, err
	case v.Within != "":
		return s.renameCheckout(ctx, who, v, c.Name)
	}
	return s.live(ctx, who, ref, "rename", func(r *resident, record *store.Sandbox) error {
		return s.rename(ctx, who, r, record, c.Name)
	})
}

// rename changes the name of a sandbox. Decisions about its network carry the old name until the next start.
func (rd *records) rename(ctx context.Context, who cove.Principal, r *resident, record *store.Sandbox,
	name string) error {
	if err := rd.o.Store.For(who).ChangeSandbox(ctx, record.ID,
		func(b *store.Sandbox) error { b.Name = name; return nil }); err != nil {
		return err
	}
	rd.renameRoute(r, name)
	for _, service := range record.Spec.Services {
		err := rd.own().ChangeSandbox(ctx, service.ID, func(b *store.Sandbox) error {
			b.Name = serviceRecordName(name, service.Name)
			return nil
		})
		if err != nil {
			return err
		}
		rd.mu.Lock()
		r := rd.held[service.ID]
		rd.mu.Unlock()
		if r != nil {
			rd.renameRoute(r, serviceRecordName(name, service.Name))
		}
	}
	return nil
}

func (rd *records) renameRoute(r *resident, name string) {
	rd.mu.Lock()
	route := r.open.route
	rd.mu.Unlock()
	if route != nil {
		route.Rename(name)
	}
}
