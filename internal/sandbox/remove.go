package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"
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
	// The record comes first, since another server may have to finish. On a full disk the removal goes on without it,
	// since it makes room.
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
	return errors.Join(c.host.Workspaces.Remove(ctx, record.ID, record.Spec.KeepWork),
		c.host.Routes.ForgetRoute(record.ID), os.RemoveAll(c.dirOf(record.ID)))
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

// removeCheckout removes everything of a checkout. A checkout that cannot be removed stays recorded, as failed; on a
// full disk the record is tried again until there is room. Its turn must be held.
func (c *reconciler) removeCheckout(ctx context.Context, r *resident, v View) error {
	noted := c.changeCheckout(ctx, v, func(c *store.Checkout) { c.State = cove.StateDestroying })
	if code := cove.ErrorCode(noted); noted != nil && code != cove.StorageFull && code != cove.NotFound {
		return noted
	}
	cleared := c.host.Workspaces.Remove(ctx, v.ID, false)
	if cleared != nil {
		noted = c.changeCheckout(ctx, v, func(c *store.Checkout) {
			c.State, c.Reason = cove.StateFailed, "it cannot be removed: "+cleared.Error()
		})
	} else {
		// This fails while the sandbox does not run. Its next start grants what the other checkouts need.
		if err := c.regrant(ctx, v.Within); err != nil {
			c.o.Log.Debug("what a shared sandbox may reach stays for now", "sandbox", v.Within, "error", err)
		}
		noted = c.own().ChangeSandbox(ctx, v.Within, func(b *store.Sandbox) error {
			b.Spec.Checkouts = slices.DeleteFunc(b.Spec.Checkouts, func(c store.Checkout) bool { return c.ID == v.ID })
			return nil
		})
	}
	if cove.ErrorCode(noted) == cove.NotFound { // the sandbox is gone, and its checkouts with it
		noted = nil
	}
	c.retry(r, cove.ErrorCode(noted) == cove.StorageFull, false, func() error {
		return c.reconcileCheckout(context.Background(), v.ID)
	})
	if err := errors.Join(cleared, noted); err != nil {
		return err
	}
	c.drop(r)
	return nil
}

// clearCheckouts removes the workspaces of the checkouts in a sandbox that is being removed.
func (c *reconciler) clearCheckouts(ctx context.Context, in cove.SandboxID) error {
	record, err := c.own().Sandbox(ctx, in) // no checkout is added any more
	for _, checkout := range record.Spec.Checkouts {
		err = errors.Join(err, c.host.Workspaces.Remove(ctx, checkout.ID, false))
	}
	return err
}

// regrant gives a shared sandbox the network that its present checkouts need. Errors: Conflict when it does not run.
func (c *reconciler) regrant(ctx context.Context, id cove.SandboxID) error {
	r, leave, err := c.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	record, err := c.current(ctx, cove.System(""), id)
	if err != nil {
		c.drop(r)
		return err
	}
	if record.State != cove.StateRunning {
		return wrongState(record, "work in")
	}
	_, open := c.running(r)
	if open.way == nil {
		return nil
	}
	n, err := c.networkOf(record)
	if err != nil {
		return err
	}
	_, err = open.way.Replace(n.Policy...)
	return err
}
