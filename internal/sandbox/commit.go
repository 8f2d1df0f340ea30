package sandbox

import (
	"context"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
)

// Changes gives access to what sandboxes have changed of their images.
type Changes struct{ of *Sandboxes }

// ChangesOf returns the changes of sandboxes.
func ChangesOf(s *Sandboxes) Changes { return Changes{s} }

// Changed are the changes of a sandbox to its image.
type Changed struct {
	Image  string   // digest
	Layer  string   // of engine.MakeLayer
	Places []string // at which it has something else, absolute
}

// Commit has commit make something of the changes of a sandbox, to be recorded as into. hold calls its argument with
// them, and nothing runs in the sandbox until that returns. Errors: NotFound, Conflict, Unsupported for a sandbox that
// has none; those of commit.
func (c Changes) Commit(ctx context.Context, who cove.Principal, ref, into string,
	commit func(hold func(use func(Changed) error) error) error) error {
	s := c.of
	found, err := s.find(ctx, who, ref)
	if err == nil {
		err = found.alone("commit")
	}
	if err != nil {
		return err
	}
	err = commit(func(use func(Changed) error) error { return c.hold(ctx, who, found.ID, use) })
	s.Audit(ctx, who, auditRecord("commit", found.ID, found.Name+" as "+into, err))
	return err
}

// hold freezes a sandbox while its changes are used.
func (c Changes) hold(ctx context.Context, who cove.Principal, id cove.SandboxID, use func(Changed) error) (err error) {
	s := c.of
	r, leave, err := s.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	record, err := s.current(ctx, who, id)
	if err != nil {
		s.drop(r)
		return err
	}
	ws, err := s.host.Workspaces.Open(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case ws.Layer == "":
		return cove.Errorf(cove.Unsupported, "the sandbox %s keeps no changes of an image", record.Name).
			WithHint("only one with root inside does: cove new --root --image IMAGE")
	case record.Spec.Digest == "":
		return cove.Errorf(cove.Unsupported, "the image of the sandbox %s is no image of the store", record.Name).
			WithHint("take it into the store, and make the sandbox anew: cove image import %s --name NAME", record.Spec.Image)
	}
	resume, err := c.freeze(ctx, r, &record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()
	return use(Changed{Image: record.Spec.Digest, Layer: ws.Layer, Places: placesOf(record)})
}

// Still calls f while nothing runs in a sandbox and its files do not change. Errors: NotFound when it is gone, or being
// made or removed; those of f.
func (c Changes) Still(ctx context.Context, id cove.SandboxID, f func() error) (err error) {
	s := c.of
	r, leave, err := s.enter(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	record, err := s.current(ctx, cove.System(""), id)
	if err != nil {
		s.drop(r)
		return err
	}
	switch record.State {
	case cove.StateRunning, cove.StatePaused, cove.StateStopped:
	default:
		return cove.Errorf(cove.NotFound, "the sandbox %s is %s", record.Name, record.State)
	}
	resume, err := c.freeze(ctx, r, &record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()
	return s.host.Disks.Still(ctx, id, record.State != cove.StateStopped, f)
}

// freeze keeps the programs of a sandbox from running until resume is called. A server that finds a frozen sandbox on
// record as running lets it run.
func (c Changes) freeze(ctx context.Context, r *resident, record *store.Sandbox) (resume func() error, err error) {
	none := func() error { return nil }
	bx, _ := c.of.running(r)
	if record.State == cove.StateRunning && bx == nil {
		if err := c.of.adopt(ctx, r, record); err != nil && cove.ErrorCode(err) != cove.NotFound {
			return nil, err
		}
		bx, _ = c.of.running(r)
	}
	switch record.State {
	case cove.StateStopped, cove.StatePaused:
		return none, nil
	case cove.StateRunning:
	default:
		return nil, wrongState(*record, "commit")
	}
	pauser, ok := bx.Sandbox.(engine.Pauser)
	if !ok {
		return nil, cove.Errorf(cove.Unsupported, "the engine %s cannot pause", record.Spec.Engine).
			WithHint("stop the sandbox first: cove stop %s", record.Name)
	}
	if err := pauser.Pause(ctx); err != nil {
		return nil, errors.Join(err, pauser.Resume(context.WithoutCancel(ctx)))
	}
	return func() error { return pauser.Resume(context.WithoutCancel(ctx)) }, nil
}

// placesOf lists the places of a sandbox at which something lies over its root filesystem.
func placesOf(record store.Sandbox) []string {
	all := []string{cove.Workspace, cove.Home, record.Spec.User.Home, gitConfigPlace, ca.Certificate,
		ca.Bundle}
	for _, w := range rootfs.Writables(record.Spec.User) {
		all = append(all, w.Name)
	}
	for _, l := range record.Spec.Layers {
		all = append(all, l.Target)
	}
	for _, m := range record.Spec.Mounts {
		all = append(all, m.Target)
	}
	for _, v := range record.Spec.Volumes {
		all = append(all, v.Target)
	}
	return all
}
