package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// idler ends idle sandboxes.
type idler struct{ *reconciler }

// tend stops and destroys the sandboxes that have been idle for as long as Host.Idle says. It is on record as done by
// Cove itself.
func (s idler) tend(ctx context.Context) {
	if s.host.Idle == (Idle{}) {
		return
	}
	all, err := s.o.Store.For(cove.System("")).Sandboxes(ctx)
	if err != nil {
		s.o.Log.Warn("cannot look for idle sandboxes", "error", err)
		return
	}
	for _, record := range all {
		if err := s.tendOne(ctx, record); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("cannot end an idle sandbox", "sandbox", record.ID, "error", err)
		}
	}
}

func (s idler) tendOne(ctx context.Context, record store.Sandbox) error {
	stop, remove := s.host.Idle.due(record, s.o.Clock.Now())
	if !stop && !remove || record.Spec.Group != "" { // a service is stopped with its sandbox
		return nil
	}
	switch busy, err := s.busy(ctx, record.ID); {
	case err != nil:
		return err
	case busy: // until now, so that its time begins when it is done
		s.touch(ctx, View{Sandbox: record})
		return nil
	}
	if remove {
		holds, err := s.holdsWork(ctx, record)
		switch {
		case err == nil && !holds:
			return s.endIdle(ctx, record, "idle-remove", func(r *resident, now store.Sandbox) error {
				return s.dismantle(context.WithoutCancel(ctx), r, now.ID, false)
			})
		case err != nil: // what cannot be found out is work
			s.o.Log.Warn("cannot tell whether an idle sandbox has work", "sandbox", record.ID, "error", err)
		}
	}
	if !stop {
		return nil
	}
	return s.endIdle(ctx, record, "idle-stop", func(r *resident, now store.Sandbox) error {
		if err := s.vacate(r); err != nil {
			return err
		}
		ctx := context.WithoutCancel(ctx)
		err := s.own().MoveSandbox(ctx, now.ID, now.State, cove.StateStopped,
			fmt.Sprintf("idle for %s (sandbox.lasting.idle_stop)", s.host.Idle.Stop))
		return errors.Join(err, group{s.supervisor}.halt(ctx, now))
	})
}

// busy reports whether anything runs in a sandbox or a terminal of it is attached to.
func (s idler) busy(ctx context.Context, id cove.SandboxID) (bool, error) {
	s.mu.Lock()
	r := s.held[id]
	s.mu.Unlock()
	if r == nil {
		return false, nil
	}
	bx, open := s.running(r)
	if bx == nil {
		return false, nil
	}
	for _, t := range open.ttys.List() {
		if t.Info().Attached > 0 {
			return true, nil
		}
	}
	stats, err := bx.Stats(ctx)
	return stats.PIDs > 0, err
}

// holdsWork reports whether a sandbox has something that would be lost with it.
func (s idler) holdsWork(ctx context.Context, record store.Sandbox) (bool, error) {
	switch {
	case len(record.Spec.Checkouts)+len(record.Spec.Services) > 0:
		return true, nil
	case record.Spec.Repository == nil:
		used, err := s.host.Disks.Used(ctx, record.ID)
		return used.Bytes > 0, err
	case s.host.Works == nil:
		return true, nil
	}
	return s.host.Works.Holds(ctx, cove.System(""), string(record.ID))
}

// endIdle ends a sandbox in its turn, unless it has been used since it was looked at.
func (s idler) endIdle(ctx context.Context, seen store.Sandbox, action string,
	end func(*resident, store.Sandbox) error) error {
	r, leave, err := s.enter(ctx, seen.ID)
	if err != nil {
		return err
	}
	defer leave()
	now, err := s.current(ctx, cove.System(""), seen.ID)
	if cove.ErrorCode(err) == cove.NotFound {
		s.drop(r)
		return nil
	}
	if err != nil {
		return err
	}
	busy, err := s.busy(ctx, seen.ID)
	if err != nil || busy || now.State != seen.State || !now.LastUsedAt.Equal(seen.LastUsedAt) {
		return err
	}
	err = end(r, now)
	s.auditLife(ctx, cove.System(""), action, now, err)
	return err
}
