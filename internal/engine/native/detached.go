//go:build linux

package native

import (
	"context"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
)

var _ engine.Adopter = (*Engine)(nil)

// newDetached starts a guest for a detached sandbox, with the namespace for mounts of this process's own user. On error
// nothing is left.
func (e *Engine) newDetached(ctx context.Context, u cove.User, online bool) (d *detached, err error) {
	d = &detached{ranges: local.NewRanges()}
	if d.self, err = instance.Hold(e.o.RunDir); err != nil {
		return nil, err
	}
	d.group = e.names.Group(d.self.ID, 1)
	if d.blank, err = e.newBlank(ctx, u, online, d.group, d.ranges); err == nil && e.root {
		_, err = e.ownership(d.blank, e.ids.Self(), u)
	}
	if err != nil {
		d.remove()
		return nil, err
	}
	return d, nil
}

// remove removes a guest that became no sandbox.
func (d *detached) remove() error {
	var err error
	if d.blank != nil {
		err = d.blank.remove()
	}
	d.ranges.Close()
	return errors.Join(err, d.self.Release())
}

// keep records a sandbox, which takes over everything that its guest holds. Errors: Conflict, StorageFull.
func (e *Engine) keep(t engine.Template, d *detached) (*local.Detached, error) {
	return e.keeper.New(d.self, local.Record{Under: e.o.CgroupParent, Name: d.group, Tasks: d.tasks, Template: t})
}

// Left implements engine.Adopter.
func (e *Engine) Left(context.Context) ([]cove.SandboxID, error) { return e.keeper.Left() }

// Runs implements engine.Adopter.
func (e *Engine) Runs(_ context.Context, id cove.SandboxID) (bool, error) { return e.keeper.Runs(id) }

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	k, err := e.keeper.Take(id, e.o.CgroupParent, "sandbox.cgroup_parent")
	if err != nil {
		return nil, err
	}
	s := &sandbox{engine: e, template: k.Record.Template, bound: true, lasts: true, keep: k, ranges: local.NewRanges()}
	if err := e.present.Adopt(k, s, func() error { return s.adopt(ctx) }); err != nil {
		return nil, err
	}
	return s, nil
}

// adopt connects to the guest, which does not answer while it is paused.
func (s *sandbox) adopt(ctx context.Context) error {
	record := s.keep.Record
	if err := s.engine.hierarchy.Group(record.Name).Thaw(); err != nil {
		return cove.Errorf(cove.Unavailable, "sandbox %s cannot be resumed: %w", s.ID(), err)
	}
	conn, err := s.keep.Dial()
	if err != nil {
		return err
	}
	client, err := guest.NewClient(ctx, conn)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", s.ID(), err)
	}
	if s.listeners, err = client.Listeners(ctx); err != nil {
		client.Close()
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not hand over its sockets: %w", s.ID(), err)
	}
	s.blank = &blank{
		client: client, group: s.engine.hierarchy.Group(record.Name), tasks: record.Tasks,
		releaseIDs: func() {}, adopted: true, done: make(chan struct{}),
	}
	go s.blank.collect()
	return nil
}
