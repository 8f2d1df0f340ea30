//go:build linux

package native

import (
	"context"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/instance"
)

var _ engine.Adopter = (*Engine)(nil)

// newDetached starts a guest for a detached sandbox, which is an instance of its own, with the namespace for mounts of
// this process's own user. On error nothing is left.
func (e *Engine) newDetached(ctx context.Context, u cove.User, online bool) (*blank, error) {
	self, err := instance.Hold(e.o.RunDir)
	if err != nil {
		return nil, err
	}
	ranges := local.NewRanges()
	b, err := e.newBlank(ctx, u, online, true, e.names.Group(self.ID, 1), ranges)
	if err != nil {
		ranges.Close()
		return nil, errors.Join(err, self.Release())
	}
	b.self, b.ranges, b.releaseIDs = self, ranges, ranges.Close
	if e.root {
		if _, err := e.ownership(b, e.ids.Self(), u); err != nil {
			b.remove()
			return nil, err
		}
	}
	return b, nil
}

// keep records a sandbox, which takes over the instance of its guest. Errors: Conflict, StorageFull.
func (e *Engine) keep(t engine.Template, b *blank) (*local.Detached, error) {
	record := local.Record{Under: e.o.CgroupParent, Name: b.group.Name(), Tasks: b.tasks, Template: t}
	k, err := e.keeper.New(b.self, record)
	if err == nil {
		b.self = nil
	}
	return k, err
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
	s := &sandbox{engine: e, template: k.Record.Template, bound: true, lasts: true, keep: k}
	if err := e.present.Adopt(k, s, func() error { return s.adopt(ctx) }); err != nil {
		return nil, err
	}
	return s, nil
}

// adopt connects to the guest, which does not answer while it is paused.
func (s *sandbox) adopt(ctx context.Context) error {
	b := &blank{group: s.engine.hierarchy.Group(s.keep.Record.Name), tasks: s.keep.Record.Tasks,
		releaseIDs: func() {}, adopted: true, done: make(chan struct{})}
	if err := b.group.Thaw(); err != nil {
		return cove.Errorf(cove.Unavailable, "sandbox %s cannot be resumed: %w", s.ID(), err)
	}
	var err error
	if b.client, s.listeners, err = s.keep.Connect(ctx); err != nil {
		return err
	}
	s.blank = b
	go b.collect()
	s.watchLocks()
	return nil
}
