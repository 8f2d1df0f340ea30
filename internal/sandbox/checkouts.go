package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A shared sandbox is a sandbox like any other, with a checkout of its repository. Its home contains more checkouts, one
// for each task. A checkout is data of its sandbox: it has a name, a branch and a change-set of its own, and no processes,
// network or isolation. Callers see it as a sandbox within the shared one.
//
// Tasks share a sandbox when their requests are alike in every respect and come from the same principal. A hash of the
// request is the key by which they find it. From a shared sandbox the branches of its present checkouts may be pushed.

// common returns the part of a request that all tasks in a shared sandbox have in common: the request for that sandbox.
// It is pure.
func (q Request) common() Request {
	q.Name, q.WorkDir, q.Labels, q.Files, q.Shared = "", "", nil, nil, false
	q.Repository = &workspace.Repository{Source: q.Repository.Source}
	return q
}

// shareKey returns the key of the shared sandbox that fits a request: equal for requests that are alike in every
// respect but their checkout.
func (q Request) shareKey() (string, error) {
	data, err := json.Marshal(q.common())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// share returns the shared sandbox for a request: the existing one, started if it does not run, or a new one. Of
// several concurrent requests one makes it.
func (s *Sandboxes) share(ctx context.Context, who cove.Principal, q Request, progress func(workspace.Step)) (cove.SandboxID, error) {
	if g := q.Repository; g == nil || g.Worktree || g.Uncommitted || q.Bind != "" || q.SSHAgent != "" {
		return "", cove.Errorf(cove.Unsupported, "a sandbox is shared by checkouts of a repository alone").WithHint("leave out what is not committed, worktrees, directories and SSH agents, or have a sandbox of your own")
	}
	key, err := q.shareKey()
	if err != nil {
		return "", err
	}
	select {
	case s.sharing <- struct{}{}:
		defer func() { <-s.sharing }()
	case <-ctx.Done():
		return "", cove.Errorf(cove.Canceled, "the caller went away while another sandbox was being made: %w", ctx.Err())
	}
	all, err := s.all(ctx, who)
	if err != nil {
		return "", err
	}
	for _, b := range all {
		if b.Spec.Shared != key || b.Owner != who {
			continue
		}
		switch b.State {
		case cove.StateRunning, cove.StateStopped:
			_, err = s.start(ctx, who, b.ID)
		case cove.StatePaused:
			_, err = s.Resume(ctx, who, string(b.ID))
		default:
			continue // it is being removed, or was to be
		}
		return b.ID, err
	}
	common := q.common()
	record, err := s.plan(who, common)
	if err != nil {
		return "", err
	}
	record.Spec.Shared = key
	made, err := s.create(ctx, record, common, progress)
	return cove.SandboxID(made.ID), err
}

// checkoutsOf returns the checkouts in a sandbox as callers see them, the newest first. It is pure.
func checkoutsOf(in store.Sandbox) (views []View) {
	for _, c := range slices.Backward(in.Spec.Checkouts) {
		v := View{Sandbox: in, Within: in.ID, Place: c.Place}
		v.ID, v.Name, v.Reason, v.CreatedAt, v.LastUsedAt = c.ID, c.Name, c.Reason, c.CreatedAt, c.LastUsedAt
		if c.State != cove.StateRunning {
			v.State = c.State
		}
		v.Spec.WorkDir, v.Spec.Labels = c.WorkDir, c.Labels
		v.Spec = store.SandboxSpec{Spec: v.Spec.Spec, Repository: c.Repository}
		views = append(views, v)
	}
	return views
}

// alone returns an error for a checkout, which cannot be started, stopped or paused without the others in its sandbox.
func (v View) alone(action string) error {
	if v.Within == "" {
		return nil
	}
	return cove.Errorf(cove.Conflict, "%s is a checkout in a sandbox that others work in, too: it is not possible to %s it alone", v.Name, action).
		WithHint("that sandbox is %s", v.Within)
}

// shared reports whether the view is a shared sandbox or a checkout in one.
func (v View) shared() bool { return v.Within != "" || v.Spec.Shared != "" }

// checkOut makes a checkout in the shared sandbox of a request, and places its files.
func (s *Sandboxes) checkOut(ctx context.Context, record store.Sandbox, q Request, progress func(workspace.Step)) (View, error) {
	in, err := s.share(ctx, record.Owner, q, progress)
	if err != nil {
		return View{}, err
	}
	v := View{Sandbox: record, Within: in}
	r, leave, err := s.enter(ctx, v.ID)
	if err != nil {
		return View{}, err
	}
	defer leave()
	if err := s.enroll(ctx, v.Owner, &v.Name, func() error { return s.addCheckout(ctx, v) }); err != nil {
		s.drop(r)
		return View{}, err
	}
	if err = s.furnishCheckout(ctx, v, q, progress); err == nil {
		err = s.regrant(ctx, in)
	}
	if err != nil {
		err = errors.Join(err, s.removeCheckout(context.WithoutCancel(ctx), r, v))
	}
	s.auditLife(ctx, v.Owner, "create", v.Sandbox, err)
	if err != nil {
		return View{}, err
	}
	s.drop(r)
	return s.find(ctx, v.Owner, string(v.ID))
}

// addCheckout records a new checkout, which is not made yet. Errors: Conflict, NotFound as of AddSandbox.
func (s *Sandboxes) addCheckout(ctx context.Context, v View) error {
	all, err := s.all(ctx, cove.System(""))
	if err != nil {
		return err
	}
	if s.host.Most > 0 && len(all) >= s.host.Most {
		return store.TooManySandboxes(len(all))
	}
	return s.o.Store.For(v.Owner).ChangeSandbox(ctx, v.Within, func(b *store.Sandbox) error {
		if b.State != cove.StateRunning {
			return wrongState(*b, "work in")
		}
		b.Spec.Checkouts = append(b.Spec.Checkouts, store.Checkout{
			ID: v.ID, Name: v.Name, State: v.State, Labels: v.Spec.Labels, WorkDir: v.Spec.WorkDir, CreatedAt: v.CreatedAt, LastUsedAt: v.LastUsedAt,
		})
		return nil
	})
}

// furnishCheckout makes the workspace of a checkout, places the files, and records that it is ready.
func (s *Sandboxes) furnishCheckout(ctx context.Context, v View, q Request, progress func(workspace.Step)) error {
	ws, err := s.host.Workspaces.Create(ctx, workspace.Spec{
		ID: v.ID, Name: v.Name, User: v.Spec.User, Repository: q.Repository, Owner: v.Owner, Within: v.Within,
	}, progress)
	if err != nil {
		return err
	}
	in, err := s.inside(ctx, v.Owner, string(v.Within))
	if err != nil {
		return err
	}
	dir := path.Join(ws.Place, q.WorkDir)
	if dir != ws.Place {
		_ = in.Guest.Guest().Mkdir(ctx, dir, 0o755) // as furnish has it
	}
	if err := provision.Deliver(ctx, in.Guest.Guest(), ws.Place, q.Files); err != nil {
		return err
	}
	return s.changeCheckout(ctx, v, func(c *store.Checkout) {
		c.State, c.Repository, c.Place, c.WorkDir = cove.StateRunning, repositoryOf(ws, q.Repository), ws.Place, dir
	})
}

// changeCheckout changes the record of a checkout. Errors: NotFound.
func (rd *records) changeCheckout(ctx context.Context, v View, f func(*store.Checkout)) error {
	return rd.o.Store.For(v.Owner).ChangeSandbox(ctx, v.Within, func(b *store.Sandbox) error {
		for i := range b.Spec.Checkouts {
			if c := &b.Spec.Checkouts[i]; c.ID == v.ID {
				f(c)
				return nil
			}
		}
		return store.NoSandbox(v.ID)
	})
}

// touchCheckout records the use of a checkout; a sandbox has none to record.
func (rd *records) touchCheckout(ctx context.Context, v View) error {
	if v.Within == "" {
		return nil
	}
	return rd.changeCheckout(ctx, v, func(c *store.Checkout) { c.LastUsedAt = rd.o.Clock.Now().UTC().Truncate(time.Microsecond) })
}

// renameCheckout changes the name of a checkout.
func (s *Sandboxes) renameCheckout(ctx context.Context, who cove.Principal, v View, name string) (View, error) {
	err := s.changeCheckout(ctx, v, func(c *store.Checkout) { c.Name = name })
	s.auditLife(ctx, who, "rename", v.Sandbox, err)
	if err != nil {
		return View{}, err
	}
	s.touch(ctx, v)
	return s.find(ctx, who, string(v.ID))
}

// destroyCheckout removes a checkout. Its turn must be held.
func (s *Sandboxes) destroyCheckout(ctx context.Context, who cove.Principal, r *resident, v View) error {
	err := s.removeCheckout(context.WithoutCancel(ctx), r, v)
	s.auditLife(ctx, who, "destroy", v.Sandbox, err)
	return err
}

// removeCheckout removes everything of a checkout. A checkout that cannot be removed stays recorded, as failed; on a full
// disk the record is tried again until there is room. Its turn must be held.
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
	c.retry(r, cove.ErrorCode(noted) == cove.StorageFull, false, func() error { return c.reconcileCheckouts(context.Background()) })
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

// reconcileCheckouts removes the checkouts that were half made or half removed. It leaves alone a checkout whose turn is
// taken.
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

// policyOfCheckouts returns the policy that the checkouts in a sandbox need for their branches.
func (v *supervisor) policyOfCheckouts(in store.Sandbox) (documents []*policy.Document, err error) {
	if asked := in.Spec.Network; asked != nil && !asked.Enabled {
		return nil, nil
	}
	for _, c := range in.Spec.Checkouts {
		if c.State != cove.StateRunning || c.Repository == nil || c.Repository.Remote == "" {
			continue
		}
		needs, err := v.host.Routes.RepositoryNetwork(in.Owner, *c.Repository, in.Spec.AllowPR)
		if err != nil {
			return nil, err
		}
		documents = append(documents, needs.Policy...)
	}
	return documents, nil
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
