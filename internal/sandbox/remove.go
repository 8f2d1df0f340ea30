package sandbox

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// reconciler removes sandboxes, and makes records and sandboxes agree.
type reconciler struct{ *supervisor }

// roomPoll is the interval of attempts to write a record for which the disk had no room.
const roomPoll = 2 * time.Second

// condemn records that a sandbox is being removed, and whether its work stays.
func (c *reconciler) condemn(ctx context.Context, record *store.Sandbox) error {
	if record.State == cove.StateDestroying {
		return nil
	}
	keepWork := record.Spec.KeepWork
	was, err := c.own().Sandbox(ctx, record.ID)
	if err == nil && was.Spec.KeepWork != keepWork {
		err = c.change(ctx, record, func(s *store.SandboxSpec) { s.KeepWork = keepWork })
	}
	if err != nil {
		return err
	}
	err = c.own().MoveSandbox(ctx, record.ID, record.State, cove.StateDestroying, record.Reason)
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
	left, err := c.destroyLeft(ctx, record.Spec.Engine, record.ID)
	if len(left) > 0 {
		c.mu.Lock()
		r.made = left
		c.mu.Unlock()
	}
	if err != nil {
		return err
	}
	// The checkouts go with its disk, so that one which cannot be mounted does not stop this.
	err = c.host.Workspaces.Remove(ctx, record.ID, record.Spec.KeepWork)
	if err == nil {
		err = c.clearCheckouts(ctx, record.ID)
	}
	if record.Spec.Digest != "" {
		err = errors.Join(err, c.host.Pins.Unpin(record.Spec.Digest, record.ID))
	}
	return errors.Join(err, c.host.Routes.ForgetRoute(record.ID), os.RemoveAll(c.dirOf(record.ID)))
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
	if open.route == nil {
		return nil
	}
	n, err := c.networkOf(record)
	if err != nil {
		return err
	}
	_, err = open.route.Replace(n.Policy...)
	return err
}
