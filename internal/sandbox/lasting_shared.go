package sandbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A sandbox that is shared is one like any other, with a checkout of its
// repository. Beside it, in its home, there are checkouts for who works in it: each
// is a sandbox by its record, with a name, a branch and a change-set of its own, and
// without processes, a network or a wall of its own. It is within the other.
//
// Who shares one has asked for the same in every respect, as the same client: that
// is the key by which it is found. What may be pushed from it are the branches of
// all that are within it, for as long as they are.

// common is what those who share a sandbox have asked for alike: the sandbox as it
// is made. It is pure.
func (q LastingRequest) common() LastingRequest {
	q.Name, q.WorkDir, q.Labels, q.Files, q.Shared = "", "", nil, nil, false
	q.Repository = &workspace.Repository{Source: q.Repository.Source}
	return q
}

// shareKey tells apart what may not share a sandbox.
func (q LastingRequest) shareKey() (string, error) {
	data, err := json.Marshal(q.common())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// share is the sandbox that q is to be within: the one that there is, which is
// started if it does not run, or one that is made. Of several who ask at once one
// makes it.
func (m *Manager) share(ctx context.Context, who cove.Principal, q LastingRequest, progress func(workspace.Step)) (cove.SandboxID, error) {
	if g := q.Repository; g == nil || g.Worktree || g.Uncommitted || q.Bind != "" || q.SSHAgent != "" {
		return "", cove.Errorf(cove.Unsupported, "a sandbox is shared by checkouts of a repository alone").WithHint("leave out what is not committed, worktrees, directories and SSH agents, or have a sandbox of your own")
	}
	key, err := q.shareKey()
	if err != nil {
		return "", err
	}
	select {
	case m.sharing <- struct{}{}:
		defer func() { <-m.sharing }()
	case <-ctx.Done():
		return "", cove.Errorf(cove.Canceled, "the caller went away while another sandbox was being made: %w", ctx.Err())
	}
	all, err := m.records(ctx, who)
	if err != nil {
		return "", err
	}
	for _, b := range all {
		if b.Spec.Shared != key || b.Owner != who {
			continue
		}
		switch b.State {
		case cove.StateRunning, cove.StateStopped:
			_, err = m.StartSandbox(ctx, who, string(b.ID))
		case cove.StatePaused:
			_, err = m.ResumeSandbox(ctx, who, string(b.ID))
		default:
			continue // it is being removed, or was to be
		}
		return b.ID, err
	}
	common := q.common()
	record, err := m.plan(who, common)
	if err != nil {
		return "", err
	}
	record.Spec.Shared = key
	made, err := m.create(ctx, record, common, progress)
	return cove.SandboxID(made.ID), err
}

// furnishWithin makes the checkout of one within another, and places its files.
func (m *Manager) furnishWithin(ctx context.Context, record *store.Sandbox, q LastingRequest, progress func(workspace.Step)) error {
	ws, err := m.lasting.Workspaces.Create(ctx, workspace.Spec{
		ID: record.ID, Name: record.Name, User: record.Spec.User, Repository: q.Repository, Owner: record.Owner, Within: record.Spec.Within,
	}, progress)
	if err != nil {
		return err
	}
	err = m.change(ctx, record, func(s *store.SandboxSpec) {
		s.Repository, s.Place, s.WorkDir = repositoryOf(ws, q.Repository), ws.Place, path.Join(ws.Place, q.WorkDir)
	})
	if err != nil {
		return err
	}
	in, err := m.inside(ctx, record.Owner, string(record.Spec.Within))
	if err != nil {
		return err
	}
	if record.Spec.WorkDir != ws.Place {
		_ = in.Guest.Guest().Mkdir(ctx, record.Spec.WorkDir, 0o755) // as furnish has it
	}
	return deliver(ctx, in.Guest.Guest(), ws.Place, q.Files)
}

// placeOf is where the checkout of a sandbox is, inside.
func placeOf(spec store.SandboxSpec) string { return cmp.Or(spec.Place, cove.Workspace) }

// stateWithin is the state of one within another. It is pure.
func stateWithin(record, host store.Sandbox) cove.State {
	if record.State == cove.StateRunning {
		return host.State
	}
	return record.State
}

// networkWithin is what those within a sandbox need of the network for their
// branches.
func (m *Manager) networkWithin(host store.Sandbox) ([]*policy.Document, error) {
	if asked := host.Spec.Network; host.Spec.Shared == "" || asked != nil && !asked.Enabled {
		return nil, nil
	}
	all, err := m.o.Store.For(host.Owner).Sandboxes(context.Background())
	if err != nil {
		return nil, err
	}
	var documents []*policy.Document
	for _, b := range all {
		if b.Spec.Within != host.ID || b.State != cove.StateRunning || b.Spec.Repository == nil || b.Spec.Repository.Remote == "" {
			continue
		}
		needs, err := m.lasting.Repository(b.Owner, *b.Spec.Repository, b.Spec.AllowPR)
		if err != nil {
			return nil, err
		}
		documents = append(documents, needs.Policy...)
	}
	return documents, nil
}

// regrant has a sandbox reach what those need that are within it now. Errors:
// Conflict when it does not run.
func (m *Manager) regrant(ctx context.Context, id cove.SandboxID) error {
	r, leave, err := m.enterLife(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	record, err := m.recordOf(ctx, cove.System(""), id)
	if err != nil {
		m.dropResident(r)
		return err
	}
	if record.State != cove.StateRunning {
		return wrongState(record, "work in")
	}
	_, open := m.runningOf(r)
	if open.way == nil {
		return nil
	}
	n, err := m.networkOf(record)
	if err != nil {
		return err
	}
	_, err = open.way.Replace(n.Policy...)
	return err
}

// clearWithin removes all of one within another but its record.
func (m *Manager) clearWithin(ctx context.Context, record store.Sandbox) error {
	if err := m.lasting.Workspaces.Remove(ctx, record.ID, record.Spec.KeepWork); err != nil {
		return err
	}
	// Where this cannot be, the sandbox does not run, or is going, and is granted
	// the rest alone when it is started.
	if err := m.regrant(ctx, record.Spec.Within); err != nil {
		m.o.Log.Debug("what a shared sandbox may reach stays for now", "sandbox", record.Spec.Within, "error", err)
	}
	return nil
}

// goneWithin reports whether one within another is to be removed: it was half made
// or half removed, or the other has gone.
func (m *Manager) goneWithin(ctx context.Context, record store.Sandbox) (bool, error) {
	raw, err := m.own().Sandbox(ctx, record.ID)
	if err != nil {
		return false, err
	}
	if raw.State != cove.StateRunning && raw.State != cove.StateFailed {
		return true, nil
	}
	_, err = m.own().Sandbox(ctx, record.Spec.Within)
	if cove.ErrorCode(err) == cove.NotFound {
		return true, nil
	}
	return false, err
}

// destroyWithin destroys what was within a sandbox that has gone.
func (m *Manager) destroyWithin(ctx context.Context, who cove.Principal, host cove.SandboxID) error {
	all, err := m.o.Store.For(who).Sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, b := range slices.DeleteFunc(all, func(b store.Sandbox) bool { return b.Spec.Within != host }) {
		if derr := m.destroy(ctx, who, b.ID, false); cove.ErrorCode(derr) != cove.NotFound {
			err = errors.Join(err, derr)
		}
	}
	return err
}
