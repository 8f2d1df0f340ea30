package sandbox

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/store"
)

// reconciler removes sandboxes, and makes records and sandboxes agree.
type reconciler struct{ *supervisor }

// reconcile makes records and sandboxes agree. It leaves alone a sandbox whose turn is taken.
func (c *reconciler) reconcile(ctx context.Context) error {
	all, err := c.own().Sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, record := range all {
		if ctx.Err() != nil {
			break
		}
		if err := c.reconcileOne(ctx, record.ID); err != nil {
			errs = append(errs, err)
			c.o.Log.Error("a sandbox cannot be put right", "sandbox", record.ID, "name", record.Name, "error", err)
		}
	}
	errs = append(errs, c.reconcileCheckouts(ctx))
	return errors.Join(errs...)
}

func (c *reconciler) reconcileOne(ctx context.Context, id cove.SandboxID) error {
	r, leave := c.tryEnter(id)
	if r == nil {
		return nil
	}
	defer leave()
	record, err := c.current(ctx, cove.System(""), id)
	if err != nil {
		c.drop(r)
		if cove.ErrorCode(err) == cove.NotFound {
			return nil // it has gone meanwhile
		}
		return err
	}
	bx, _ := c.running(r)
	switch record.State {
	case cove.StatePreparing, cove.StateReady, cove.StateDestroying:
		err := c.dismantle(ctx, r, id, record.Spec.KeepWork)
		if err == nil {
			c.o.Log.Info("removed a sandbox that was half made, or half removed", "sandbox", id, "name", record.Name)
		}
		return err
	case cove.StateRunning:
		if bx == nil {
			if err := c.adopt(ctx, r, &record); cove.ErrorCode(err) != cove.NotFound {
				return err
			}
		}
	case cove.StatePaused:
		if bx == nil {
			return c.checkPaused(ctx, record)
		}
	case cove.StateStopped:
		if bx == nil { // one that is being started or stopped when its server dies
			return c.destroyLeft(ctx, record.Spec.Engine, id)
		}
	}
	return nil
}

// checkPaused records a paused sandbox that is gone as stopped. Another stays paused until its resumption adopts it.
func (c *reconciler) checkPaused(ctx context.Context, record store.Sandbox) error {
	eng, err := c.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	adopter, ok := eng.(engine.Adopter)
	if !ok {
		return nil
	}
	if runs, err := adopter.Runs(ctx, record.ID); err != nil || runs {
		return err
	}
	return c.stopped(ctx, &record)
}

// orphans returns the workspaces, and the sandboxes of engines in use, that have no record.
func (c *reconciler) orphans(ctx context.Context, records []View) ([]string, error) {
	known := func(id cove.SandboxID) bool {
		return slices.ContainsFunc(records, func(v View) bool { return v.ID == id })
	}
	var all []string
	add := func(ids []cove.SandboxID) {
		for _, id := range ids {
			if !known(id) && !slices.Contains(all, string(id)) {
				all = append(all, string(id))
			}
		}
	}
	ids, err := c.host.Workspaces.List(ctx)
	if err != nil {
		return nil, err
	}
	add(ids)
	for _, eng := range c.o.Engines.Opened() {
		if adopter, ok := eng.(engine.Adopter); ok {
			left, err := adopter.Left(ctx)
			if err != nil {
				return nil, err
			}
			add(left)
		}
	}
	slices.Sort(all)
	return all, nil
}

// destroyOrphan removes an orphan, or returns the error otherwise when there is none.
func (c *reconciler) destroyOrphan(ctx context.Context, who cove.Principal, ref string, keepWork bool,
	otherwise error) error {
	id, err := cove.ParseSandboxID(ref)
	if err != nil {
		return otherwise
	}
	r, leave, err := c.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	defer c.drop(r)
	records, err := c.all(ctx, cove.System("")) // after its turn has come: it may have been recorded meanwhile
	if err != nil {
		return err
	}
	orphans, err := c.orphans(ctx, records)
	if err != nil {
		return err
	}
	if !slices.Contains(orphans, ref) {
		return otherwise
	}
	ctx = context.WithoutCancel(ctx)
	for _, eng := range c.o.Engines.Opened() {
		err = errors.Join(err, c.destroyLeft(ctx, eng.Name(), id))
	}
	err = errors.Join(err, c.host.Workspaces.Remove(ctx, id, keepWork), c.host.Routes.ForgetRoute(id),
		os.RemoveAll(c.dirOf(id)))
	c.auditLife(ctx, who, "destroy", store.Sandbox{ID: id, Name: "of no sandbox"}, err)
	return err
}

// reconcileCheckouts removes the checkouts that were half made or half removed. It leaves alone a checkout whose turn
// is taken.
func (c *reconciler) reconcileCheckouts(ctx context.Context) error {
	all, err := c.own().Sandboxes(ctx)
	for _, record := range all {
		if c.correct(&record); record.State == cove.StateDestroying {
			continue // its checkouts go with it
		}
		for _, v := range checkoutsOf(record) {
			if c.correct(&v.Sandbox); v.State == cove.StatePreparing || v.State == cove.StateDestroying {
				err = errors.Join(err, c.reconcileCheckout(ctx, v.ID))
			}
		}
	}
	return err
}

func (c *reconciler) reconcileCheckout(ctx context.Context, id cove.SandboxID) error {
	r, leave := c.tryEnter(id)
	if r == nil {
		return nil
	}
	defer leave()
	v, err := c.find(ctx, cove.System(""), string(id)) // as it is now
	if err != nil || v.State != cove.StatePreparing && v.State != cove.StateDestroying {
		c.drop(r)
		if cove.ErrorCode(err) == cove.NotFound {
			return nil // it has gone meanwhile
		}
		return err
	}
	if err = c.removeCheckout(ctx, r, v); err == nil {
		c.o.Log.Info("removed a sandbox that was half made, or half removed", "sandbox", id, "name", v.Name)
	}
	return err
}
