package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A shared sandbox is a sandbox like any other, with a checkout of its repository. Its home contains more checkouts,
// one for each task. A checkout is data of its sandbox: it has a name, a branch and a change-set of its own, and no
// processes, network or isolation. Callers see it as a sandbox within the shared one.
//
// Tasks share a sandbox when their requests are alike in every respect and come from the same principal. A hash of the
// request is the key by which they find it. From a shared sandbox the branches of its present checkouts may be pushed.

// common returns the part of a request that all tasks in a shared sandbox have in common: the request for that sandbox.
// It is pure.
func (q Request) common() Request {
	q.Name, q.WorkDir, q.Labels, q.Files, q.Shared = q.SharedName, "", nil, nil, false
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
func (s *Sandboxes) share(ctx context.Context, who cove.Principal, q Request,
	progress func(workspace.Step)) (cove.SandboxID, error) {
	if g := q.Repository; g == nil || g.Worktree || g.Uncommitted || q.Bind != "" || q.SSHAgent != "" {
		return "", cove.Errorf(cove.Unsupported, "a sandbox is shared by checkouts of a repository alone").
			WithHint("leave out what is not committed, worktrees, directories and SSH agents, or have a sandbox of your own")
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
	if q.SharedName != "" {
		if err := freeForSharing(all, who, q.SharedName); err != nil {
			return "", err
		}
	}
	common := q.common()
	record, err := s.Plan(who, common)
	if err != nil {
		return "", err
	}
	record.Spec.Shared = key
	made, err := s.create(ctx, record, common, progress)
	return made.ID, err
}

// freeForSharing refuses the name of a sandbox that is there and does not fit the request. It is pure.
func freeForSharing(all []View, who cove.Principal, name string) error {
	i := slices.IndexFunc(all, func(v View) bool { return v.Name == name && v.Owner == who })
	switch {
	case i < 0:
		return nil
	case all[i].Spec.Shared == "":
		return cove.Errorf(cove.Conflict, "the sandbox %s is not one that is shared", name).
			WithHint("share by another name, or destroy it: cove destroy %s", name)
	}
	return cove.Errorf(cove.Conflict, "the sandbox %s is shared, and differs from what is asked for: in its profile, "+
		"agent, repository, network, limits or the like", name).
		WithHint("share by another name, or destroy it when its work is done: cove destroy %s", name)
}

// checkOut makes a checkout in the shared sandbox of a request, and places its files.
func (s *Sandboxes) checkOut(ctx context.Context, record store.Sandbox, q Request, progress func(workspace.Step)) (
	View, error) {
	if err := s.o.Places.Spare(ctx, record.Owner); err != nil {
		return View{}, err
	}
	ctx, charge := s.o.Places.Charge(ctx, record.Owner)
	defer charge()
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
	known := len(all)
	own := len(slices.DeleteFunc(all, func(other View) bool { return other.Owner != v.Owner }))
	most := s.o.Grants.Of(v.Owner).Sandboxes
	if err := (store.Room{All: s.host.Most, Own: most}).Admits(v.Owner, known, own); err != nil {
		return err
	}
	if most > 0 && own >= most {
		return store.TooManyOwn(own)
	}
	return s.o.Store.For(v.Owner).ChangeSandbox(ctx, v.Within, func(b *store.Sandbox) error {
		if b.State != cove.StateRunning {
			return wrongState(*b, "work in")
		}
		b.Spec.Checkouts = append(b.Spec.Checkouts, store.Checkout{
			ID: v.ID, Name: v.Name, State: v.State, Labels: v.Spec.Labels, WorkDir: v.Spec.WorkDir,
			CreatedAt: v.CreatedAt, LastUsedAt: v.LastUsedAt,
		})
		return nil
	})
}

// furnishCheckout makes the workspace of a checkout, places the files, and records that it is ready.
func (s *Sandboxes) furnishCheckout(ctx context.Context, v View, q Request, progress func(workspace.Step)) error {
	ws, err := s.host.Workspaces.Create(ctx, workspace.Spec{
		ID: v.ID, Name: v.Name, User: v.Spec.User, Repository: q.Repository, Owner: v.Owner, Within: v.Within,
		Disk: diskOf(v.Spec.Limits),
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
