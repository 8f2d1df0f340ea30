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

// A shared sandbox is a sandbox like any other, with a checkout of its repository. Its home contains more checkouts, one
// for each task: a checkout is recorded as a sandbox, with a name, a branch and a change-set of its own, and without
// processes, a network or a wall of its own. The record says within which sandbox it is.
//
// Tasks share a sandbox when their requests are alike in every respect and come from the same principal: that is the key
// by which it is found. From a shared sandbox the branches of its present checkouts may be pushed.

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
			_, err = s.Start(ctx, who, string(b.ID))
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

// furnishWithin makes a checkout in a shared sandbox, and places its files.
func (s *Sandboxes) furnishWithin(ctx context.Context, record *store.Sandbox, q Request, progress func(workspace.Step)) error {
	ws, err := s.host.Workspaces.Create(ctx, workspace.Spec{
		ID: record.ID, Name: record.Name, User: record.Spec.User, Repository: q.Repository, Owner: record.Owner, Within: record.Spec.Within,
	}, progress)
	if err != nil {
		return err
	}
	err = s.change(ctx, record, func(s *store.SandboxSpec) {
		s.Repository, s.Place, s.WorkDir = repositoryOf(ws, q.Repository), ws.Place, path.Join(ws.Place, q.WorkDir)
	})
	if err != nil {
		return err
	}
	in, err := s.inside(ctx, record.Owner, string(record.Spec.Within))
	if err != nil {
		return err
	}
	if record.Spec.WorkDir != ws.Place {
		_ = in.Guest.Guest().Mkdir(ctx, record.Spec.WorkDir, 0o755) // as furnish has it
	}
	return provision.Deliver(ctx, in.Guest.Guest(), ws.Place, q.Files)
}

// destroyWithin destroys the checkouts of a shared sandbox that is gone.
func (s *Sandboxes) destroyWithin(ctx context.Context, who cove.Principal, host cove.SandboxID) error {
	all, err := s.o.Store.For(who).Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, b := range slices.DeleteFunc(all, func(b store.Sandbox) bool { return b.Spec.Within != host }) {
		if derr := s.destroy(ctx, who, b.ID, false); cove.ErrorCode(derr) != cove.NotFound {
			err = errors.Join(err, derr)
		}
	}
	return err
}
