package sandbox

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// roomPoll is the interval of attempts to write a record for which the disk had no room.
const roomPoll = 2 * time.Second

// dismantle removes a sandbox with everything that belongs to it. A sandbox that cannot be removed stays recorded, as
// failed; on a full disk the record is tried again until there is room. The turn must be held.
func (c *reconciler) dismantle(ctx context.Context, r *resident, id cove.SandboxID, keepWork bool) error {
	record, err := c.own().Sandbox(ctx, id)
	if err != nil {
		return err
	}
	if record.State != cove.StateDestroying {
		record.Spec.KeepWork = keepWork
	}
	// The record comes first, since another server may have to finish. On a full disk the removal goes on without it, since
	// it makes room.
	noted := c.condemn(ctx, &record)
	if noted != nil && cove.ErrorCode(noted) != cove.StorageFull {
		return noted
	}
	cleared := c.clear(ctx, r, record)
	if noted != nil {
		noted = c.condemn(ctx, &record)
	}
	switch {
	case noted != nil:
	case cleared != nil:
		noted = c.own().MoveSandbox(ctx, id, cove.StateDestroying, cove.StateFailed, "it cannot be removed: "+cleared.Error())
	default:
		noted = c.own().RemoveSandbox(ctx, id)
	}
	c.retry(r, cove.ErrorCode(noted) == cove.StorageFull, record.Spec.KeepWork, func() error {
		return c.reconcileOne(context.Background(), id)
	})
	if err := errors.Join(cleared, noted); err != nil {
		return err
	}
	c.drop(r)
	return nil
}

// condemn records that a sandbox is being removed, and whether its work stays.
func (c *reconciler) condemn(ctx context.Context, record *store.Sandbox) error {
	if record.State == cove.StateDestroying {
		return nil
	}
	keepWork := record.Spec.KeepWork
	if err := c.change(ctx, record, func(s *store.SandboxSpec) { s.KeepWork = keepWork }); err != nil {
		return err
	}
	err := c.own().MoveSandbox(ctx, record.ID, record.State, cove.StateDestroying, record.Reason)
	if err == nil {
		record.State = cove.StateDestroying
	}
	return err
}

// clear removes everything of a sandbox except its record.
func (c *reconciler) clear(ctx context.Context, r *resident, record store.Sandbox) error {
	if err := c.vacate(r); err != nil {
		return err
	}
	if err := c.destroyLeft(ctx, record.Spec.Engine, record.ID); err != nil {
		return err
	}
	if err := c.clearCheckouts(ctx, record.ID); err != nil {
		return err
	}
	return errors.Join(c.host.Workspaces.Remove(ctx, record.ID, record.Spec.KeepWork), c.host.Routes.ForgetRoute(record.ID), os.RemoveAll(c.dirOf(record.ID)))
}

// retry remembers that a sandbox is to be removed although its record does not say so for want of room, and has that
// tried again.
func (c *reconciler) retry(r *resident, doomed, keepWork bool, again func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.doomed, r.keepWork = doomed, keepWork
	if !doomed || r.retried {
		return
	}
	r.retried = true
	c.o.Clock.AfterFunc(roomPoll, func() {
		c.mu.Lock()
		r.retried = false
		c.mu.Unlock()
		again() // the caller has the error of the first attempt
	})
}
