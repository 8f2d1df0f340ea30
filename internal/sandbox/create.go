package sandbox

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// create makes a planned sandbox.
func (s *Sandboxes) create(ctx context.Context, record store.Sandbox, q Request,
	progress func(workspace.Step)) (made View, err error) {
	if err := s.checkDisk(ctx, record.Owner); err != nil {
		return made, err
	}
	if err := s.o.Places.Spare(ctx, record.Owner); err != nil {
		return made, err
	}
	ctx, charge := s.o.Places.Charge(ctx, record.Owner)
	defer charge()
	if err := settleUser(ctx, s.o, &record); err != nil {
		return made, err
	}
	if err := (group{s.supervisor}).tryImages(ctx, record, q.Services); err != nil {
		return made, err
	}
	if err := s.tryImage(ctx, &record, q, progress); err != nil {
		return made, err
	}
	r, leave, err := s.enter(ctx, record.ID)
	if err != nil {
		return made, err
	}
	defer leave()
	err = s.enroll(ctx, record.Owner, &record.Name, func() error {
		return s.within(record.Owner, uploadOf(q), func(room store.Room) error {
			return s.o.Store.For(record.Owner).AddSandbox(ctx, record, room)
		})
	})
	if err != nil {
		s.drop(r)
		return made, err
	}
	if err = s.furnish(ctx, r, &record, q, progress); err == nil {
		err = s.settle(ctx, record)
	}
	if err != nil {
		err = errors.Join(err, s.dismantle(context.WithoutCancel(ctx), r, record.ID, false))
	}
	s.auditLife(ctx, record.Owner, "create", record, err)
	if err != nil {
		return made, err
	}
	return s.view(ctx, record.Owner, record.ID)
}

// Check reports whether Create would make a sandbox for a request, as far as Plan sees, and with the limit of its disk.
// Errors: those of Plan.
func (s *Sandboxes) Check(ctx context.Context, who cove.Principal, q Request) error {
	_, err := s.Plan(who, q)
	if err == nil {
		err = s.checkDisk(ctx, who)
	}
	return err
}

// Plan returns the record of the sandbox that Create would make for a request, and makes nothing. It looks at neither
// the repository nor the image, and not at how a disk is bounded, since the sandbox may be there. Errors:
// InvalidArgument, NotFound, Unsupported, Unavailable.
func (s *Sandboxes) Plan(who cove.Principal, q Request) (store.Sandbox, error) {
	if err := s.owns(); err != nil {
		return store.Sandbox{}, err
	}
	if err := q.check(); err != nil {
		return store.Sandbox{}, err
	}
	eng, err := s.o.Engines.Get(q.Engine)
	if err != nil {
		return store.Sandbox{}, err
	}
	if c := eng.Capabilities(); !c.Lasting || !c.MountOwners { // without owners, nothing could be written in a workspace
		return store.Sandbox{}, cove.Errorf(cove.Unsupported, "the engine %s has no long-lived sandboxes here", eng.Name()).
			WithHint("%s", cmp.Or(c.Missing["lasting"], c.Missing["mount_owners"], "use the engine native"))
	}
	limits, err := s.o.Bounds.Resolve(runtime.Runtime{Limits: s.o.Defaults.Limits.Over(defaults.Limits)}, q.Limits)
	if err != nil {
		return store.Sandbox{}, err
	}
	spec := q.Over(s.o.Defaults).Over(defaults)
	spec.Engine, spec.Limits, spec.WorkDir = eng.Name(), limits, path.Join(cove.Workspace, q.WorkDir)
	if err := eng.Capabilities().Check(engine.Template{Shape: spec.Shape, Network: cove.NetworkNone}); err != nil {
		return store.Sandbox{}, err
	}
	if err := needVolumes(eng, spec); err != nil {
		return store.Sandbox{}, err
	}
	network, err := egress.NetworkOf(spec.Network)
	if err != nil {
		return store.Sandbox{}, err
	}
	if spec.Network != nil && spec.Network.Enabled {
		if err := s.host.Routes.CheckRoute(who, network); err != nil {
			return store.Sandbox{}, err
		}
	}
	services, err := group{s.supervisor}.plan(eng, q.Services)
	if err != nil {
		return store.Sandbox{}, err
	}
	now := s.o.Clock.Now().UTC().Truncate(time.Microsecond)
	return store.Sandbox{
		ID: cove.NewSandboxID(), Name: q.Name, Owner: who, State: cove.StatePreparing, CreatedAt: now, LastUsedAt: now,
		Spec: store.SandboxSpec{Spec: spec, Services: services},
	}, nil
}

// furnish makes the workspace, starts the sandbox and places the files.
func (s *Sandboxes) furnish(ctx context.Context, r *resident, record *store.Sandbox, q Request,
	progress func(workspace.Step)) error {
	eng, err := s.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	ws, err := s.host.Workspaces.Create(ctx, workspace.Spec{
		ID: record.ID, Name: record.Name, User: record.Spec.User, Repository: q.Repository, Bind: q.Bind, Owner: record.Owner,
		Disk: diskOf(record.Spec.Limits), Layer: layered(record.Spec.Spec, eng.Capabilities()),
	}, progress)
	if err != nil {
		return err
	}
	if err := s.change(ctx, record, func(s *store.SandboxSpec) {
		s.Directory, s.Repository = ws.Directory,
			repositoryOf(ws, q.Repository)
	}); err != nil {
		return err
	}
	if err := (group{s.supervisor}).raise(ctx, *record, q.Services, progress); err != nil {
		return err
	}
	progress(workspace.Step{Text: "starting the sandbox"})
	if err := s.bring(ctx, r, record, ws); err != nil {
		return err
	}
	bx, _ := s.running(r)
	if err := provision.Deliver(ctx, bx.Guest(), record.Spec.User.Home, q.Home); err != nil {
		return err
	}
	// The repository may lack an empty directory. If it cannot be made, the first process there reports that.
	if dir := record.Spec.WorkDir; q.Bind == "" && strings.HasPrefix(dir, cove.Workspace+"/") {
		_ = bx.Guest().Mkdir(ctx, dir, 0o755)
	}
	return provision.Deliver(ctx, bx.Guest(), cove.Workspace, q.Files)
}

// repositoryOf returns the recorded part of a workspace's repository.
func repositoryOf(ws workspace.Workspace, asked *workspace.Repository) *store.SandboxRepository {
	if asked == nil {
		return nil
	}
	return &store.SandboxRepository{
		Source: ws.Source, Remote: ws.Remote, Branch: ws.Branch, From: ws.From, Base: ws.Base, Worktree: asked.Worktree,
		Shared: ws.Shared,
	}
}
