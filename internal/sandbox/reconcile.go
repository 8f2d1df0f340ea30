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
	if record.Spec.Group != "" {
		if done, err := c.reconcileService(ctx, r, record); done || err != nil {
			return err
		}
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
			_, err := c.destroyLeft(ctx, record.Spec.Engine, id)
			return err
		}
	}
	return nil
}

// reconcileService ends a service whose sandbox does not run, and removes one whose sandbox is gone or half made; done
// reports that there is no more to do. It leaves alone a service of a sandbox whose turn is taken.
func (c *reconciler) reconcileService(ctx context.Context, r *resident, record store.Sandbox) (done bool, err error) {
	held, leave := c.tryEnter(record.Spec.Group)
	if held == nil {
		return true, nil
	}
	defer leave()
	owner, err := c.current(ctx, cove.System(""), record.Spec.Group)
	switch gone := cove.ErrorCode(err) == cove.NotFound; {
	case gone:
		c.drop(held)
	case err != nil:
		return true, err
	case owner.State == cove.StateRunning || owner.State == cove.StatePaused:
		return false, nil
	case owner.State == cove.StateStopped:
		if record.State != cove.StateRunning && record.State != cove.StatePaused {
			return false, nil
		}
		if err := c.vacate(r); err != nil {
			return true, err
		}
		if _, err := c.destroyLeft(ctx, record.Spec.Engine, record.ID); err != nil {
			return true, err
		}
		return true, c.own().MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, "its sandbox does not run")
	}
	return true, c.dismantle(ctx, r, record.ID, false)
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
		_, lerr := c.destroyLeft(ctx, eng.Name(), id)
		err = errors.Join(err, lerr)
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

// dismantle removes a sandbox with everything that belongs to it. A sandbox that cannot be removed stays recorded, as
// failed; on a full disk the record is tried again until there is room. The turn must be held.
func (c *reconciler) dismantle(ctx context.Context, r *resident, id cove.SandboxID, keepWork bool) error {
	record, err := c.own().Sandbox(ctx, id)
	if err != nil {
		return err
	}
	if record.State != cove.StateDestroying {
		if err := c.host.Workspaces.CheckRemove(id, keepWork); err != nil {
			return err // before anything of it is gone
		}
		record.Spec.KeepWork = keepWork
	}
	// The record comes first, since another server may have to finish. On a full disk the removal goes on without it,
	// since it makes room.
	noted := c.condemn(ctx, &record)
	if noted != nil && cove.ErrorCode(noted) != cove.StorageFull {
		return noted
	}
	cleared := c.clear(ctx, r, record)
	if cleared == nil {
		cleared = group{c.supervisor}.each(ctx, record, func(r *resident, service store.Sandbox) error {
			return c.dismantle(ctx, r, service.ID, false)
		})
	}
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
