package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// group makes, starts and ends the services of sandboxes. Each is a sandbox with a record of its own, and begins and
// ends with the one that it belongs to: methods take the turns of services while the caller holds that sandbox's.
type group struct{ *supervisor }

// serviceRecordName returns the name of a service's record, which no user can give to another sandbox.
func serviceRecordName(owner, service string) string { return owner + "." + service }

// plan returns the services of a new sandbox. Errors: Unsupported.
func (g group) plan(eng engine.Engine, asked []cove.Service) (all []store.Service, err error) {
	if len(asked) == 0 {
		return nil, nil
	}
	c := eng.Capabilities()
	if !slices.Contains(c.Networks, cove.NetworkLimited) {
		return nil, cove.Errorf(cove.Unsupported, "sandboxes of the engine %s have no network, and so no services",
			eng.Name()).WithHint("leave the services out, or use the engine native")
	}
	if _, err := g.engine(eng.Name()); err != nil {
		return nil, err
	}
	for _, s := range asked {
		all = append(all, store.Service{Name: s.Name, ID: cove.NewSandboxID()})
	}
	return all, nil
}

// engine returns the engine of the services of a sandbox: its own where that can have them, or another one of this
// machine. Whichever it is, only the gateway connects what is in a group. Errors: Unsupported.
func (g group) engine(own string) (engine.Engine, error) {
	eng, err := g.o.Engines.Get(own)
	if err != nil || hasServices(eng.Capabilities()) == nil {
		return eng, err
	}
	able, err := g.o.Engines.Able(hasServices)
	if err != nil {
		err = cove.Errorf(cove.Unsupported, "no engine of this machine can have services: %w", err).
			WithHint("leave the services out, or run \"cove doctor\" for what the native engine lacks")
	}
	return able, err
}

// hasServices refuses an engine that cannot have services: one that keeps nothing of what they change, or that connects
// into no sandbox.
func hasServices(c engine.Capabilities) error {
	switch {
	case !c.Lasting, !c.Layers, !slices.Contains(c.Networks, cove.NetworkLimited):
		return cove.Errorf(cove.Unsupported, "it keeps no changes of a root filesystem, or has no network")
	case !c.Reach:
		return cove.Errorf(cove.Unsupported, "it connects into no sandbox: %s", c.Missing["reach"])
	}
	return nil
}

// tryImages refuses services whose images are not there, before anything is made. Errors: those of the images.
func (g group) tryImages(ctx context.Context, owner store.Sandbox, asked []cove.Service) error {
	if len(asked) == 0 {
		return nil
	}
	eng, err := g.engine(owner.Spec.Engine)
	if err != nil {
		return err
	}
	for _, s := range asked {
		var root engine.Rootfs
		release := func() {}
		if root, release, err = provision.Rootfs(ctx, g.o.Images, eng, s.Image); err == nil {
			release()
			_, err = userOfService(eng, root, owner)
		}
		if err != nil {
			return cove.Errorf(cove.ErrorCode(err), "the service %s: %w", s.Name, err).WithHint("%s", cove.ErrorHint(err))
		}
	}
	return nil
}

// userOfService returns the user of a service's programs: of its image, which may say none or root; then it is root
// inside where that is the sandbox's own, and Cove's user otherwise.
func userOfService(eng engine.Engine, root engine.Rootfs, owner store.Sandbox) (cove.User, error) {
	spec := cove.Spec{Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached}}
	u, err := provision.User(eng, root, spec)
	if err == nil && !u.IsOfImage() && owner.Spec.User.MayBeRoot() {
		u = cove.RootUser
	}
	return u, err
}

// raise has the services of a sandbox run and be ready. asked describes those of a new sandbox, which are made. Errors:
// the first of a service; the others then are ended as far as they were starting.
func (g group) raise(ctx context.Context, owner store.Sandbox, asked []cove.Service,
	progress func(workspace.Step)) error {
	if len(owner.Spec.Services) == 0 || owner.Spec.Group != "" {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reporting sync.Mutex
	report := func(text string) {
		reporting.Lock()
		defer reporting.Unlock()
		if progress != nil {
			progress(workspace.Step{Text: text})
		}
	}
	var all sync.WaitGroup
	for i, service := range owner.Spec.Services {
		all.Go(func() {
			var of *cove.Service
			if i < len(asked) {
				of = &asked[i]
			}
			if err := g.raiseOne(ctx, owner, service, of, report); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (g group) raiseOne(ctx context.Context, owner store.Sandbox, service store.Service, asked *cove.Service,
	report func(string)) error {
	r, leave, err := g.turnOf(ctx, service.ID)
	if err != nil {
		return err
	}
	defer leave()
	if asked != nil {
		report("starting the service " + service.Name)
		record, err := g.make(ctx, r, owner, service, *asked)
		if err == nil {
			err = serviceRunner{g.supervisor}.begin(ctx, r, record)
		}
		if err == nil {
			err = g.settle(ctx, record)
		}
		return err // what is left of it goes with its sandbox
	}
	record, err := g.own().Sandbox(ctx, service.ID)
	if err != nil {
		g.drop(r)
		return err
	}
	bx, _ := g.running(r)
	switch {
	case record.State == cove.StateRunning && bx != nil:
		return nil
	case record.State == cove.StatePaused && bx != nil:
		return g.thaw(ctx, bx, record.ID)
	case record.State == cove.StateRunning, record.State == cove.StatePaused:
		if err := g.adopt(ctx, r, &record); cove.ErrorCode(err) != cove.NotFound {
			return err
		}
	case record.State != cove.StateStopped:
		return wrongState(record, "start")
	}
	ws, err := g.host.Workspaces.Open(ctx, record.ID)
	if err == nil {
		err = g.bring(ctx, r, &record, ws)
	}
	if err == nil {
		err = serviceRunner{g.supervisor}.begin(ctx, r, record)
	}
	if err == nil {
		err = g.own().MoveSandbox(ctx, record.ID, cove.StateStopped, cove.StateRunning, "")
	}
	if err != nil {
		err = errors.Join(err, g.vacate(r))
	}
	return err
}

// make records a new service, makes its workspace and its sandbox.
func (g group) make(ctx context.Context, r *resident, owner store.Sandbox, service store.Service,
	asked cove.Service) (record store.Sandbox, err error) {
	eng, err := g.engine(owner.Spec.Engine)
	if err != nil {
		return record, err
	}
	root, release, err := provision.Rootfs(ctx, g.o.Images, eng, asked.Image)
	if err != nil {
		return record, err
	}
	defer release()
	limits, err := g.o.Bounds.Resolve(runtime.Runtime{Limits: g.o.Defaults.Limits.Over(defaults.Limits)}, asked.Limits)
	if err != nil {
		return record, err
	}
	spec := cove.Spec{Engine: eng.Name(), Image: asked.Image, Env: asked.Env, Volumes: asked.Volumes,
		WorkDir: imageDir(root), Network: networkOfService(owner.Spec.Network),
		Shape: cove.Shape{Isolation: owner.Spec.Isolation, Limits: limits, Lifetime: cove.LifetimeDetached,
			NoExec: owner.Spec.NoExec}}
	if spec.User, err = userOfService(eng, root, owner); err != nil {
		return record, err
	}
	now := g.o.Clock.Now().UTC().Truncate(time.Microsecond)
	record = store.Sandbox{ID: service.ID, Name: serviceRecordName(owner.Name, service.Name), Owner: owner.Owner,
		State: cove.StatePreparing, CreatedAt: now, LastUsedAt: now,
		Spec: store.SandboxSpec{Spec: spec, Services: owner.Spec.Services, Group: owner.ID, Service: &asked}}
	err = g.enroll(ctx, record.Owner, &record.Name, func() error {
		return g.records.within(record.Owner, "", func(room store.Room) error {
			return g.o.Store.For(record.Owner).AddSandbox(ctx, record, room)
		})
	})
	if err != nil {
		g.drop(r)
		return record, err
	}
	ws, err := g.host.Workspaces.Create(ctx, workspace.Spec{ID: record.ID, Name: service.Name, User: spec.User,
		Owner: record.Owner, Disk: diskOf(limits), Layer: true}, func(workspace.Step) {})
	if err == nil {
		err = g.change(ctx, &record, func(s *store.SandboxSpec) { s.Directory = ws.Directory })
	}
	if err == nil {
		err = g.bring(ctx, r, &record, ws)
	}
	return record, err
}

// networkOfService returns the network of the services of a sandbox with a network: what that allows, without its
// credentials and models, which are for the programs of the sandbox itself. It is pure.
func networkOfService(of *cove.Network) *cove.Network {
	if of == nil || !of.Enabled {
		return of
	}
	n := cove.Network{Enabled: true, Policies: of.Policies, Mode: of.Mode, Allow: of.Allow, Deny: of.Deny,
		Presets: of.Presets, PassThrough: of.PassThrough}
	if !n.Opens() && n.Mode == "" && len(n.Deny) == 0 {
		return nil
	}
	return &n
}

// each calls f for every service that is there, each in its turn and all at once. A sandbox that is a service itself
// has none.
func (g group) each(ctx context.Context, owner store.Sandbox, f func(*resident, store.Sandbox) error) error {
	if owner.Spec.Group != "" {
		return nil
	}
	errs := make([]error, len(owner.Spec.Services))
	var all sync.WaitGroup
	for i, service := range owner.Spec.Services {
		all.Go(func() {
			r, leave, err := g.turnOf(ctx, service.ID)
			if err != nil {
				errs[i] = err
				return
			}
			defer leave()
			record, err := g.own().Sandbox(ctx, service.ID)
			switch {
			case cove.ErrorCode(err) == cove.NotFound:
				g.drop(r)
			case err != nil:
				errs[i] = err
			default:
				errs[i] = f(r, record)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// halt stops the services of a sandbox that has been stopped.
func (g group) halt(ctx context.Context, owner store.Sandbox) error {
	return g.each(ctx, owner, func(r *resident, record store.Sandbox) error {
		if record.State != cove.StateRunning && record.State != cove.StatePaused {
			return nil
		}
		bx, _ := g.running(r)
		if bx == nil {
			if err := g.adopt(ctx, r, &record); err != nil {
				if cove.ErrorCode(err) == cove.NotFound {
					return nil // and on record as stopped
				}
				return err
			}
			bx, _ = g.running(r)
		}
		if record.State == cove.StateRunning && bx != nil {
			serviceRunner{g.supervisor}.end(ctx, r, record)
		}
		if err := g.vacate(r); err != nil {
			return err
		}
		return g.own().MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, "")
	})
}

// pause freezes the services of a sandbox that is frozen.
func (g group) pause(ctx context.Context, owner store.Sandbox) error {
	return g.each(ctx, owner, func(r *resident, record store.Sandbox) error {
		bx, _ := g.running(r)
		if record.State != cove.StateRunning || bx == nil {
			return nil
		}
		return g.freeze(ctx, bx, bx.Sandbox.(engine.Pauser), record.ID)
	})
}

// freeze pauses what runs, and records that. It is frozen first: a server that finds a frozen sandbox recorded as
// running lets it run.
func (g group) freeze(ctx context.Context, bx *provision.Sandbox, pauser engine.Pauser, id cove.SandboxID) error {
	if err := pauser.Pause(ctx); err != nil {
		return err
	}
	if err := g.own().MoveSandbox(ctx, id, cove.StateRunning, cove.StatePaused, ""); err != nil {
		return errors.Join(err, pauser.Resume(context.WithoutCancel(ctx)))
	}
	bx.Become(cove.StatePaused)
	return nil
}

// thaw continues what is paused, and records that.
func (g group) thaw(ctx context.Context, bx *provision.Sandbox, id cove.SandboxID) error {
	if err := g.own().MoveSandbox(ctx, id, cove.StatePaused, cove.StateRunning, ""); err != nil {
		return err
	}
	bx.Become(cove.StateRunning)
	if err := bx.Sandbox.(engine.Pauser).Resume(ctx); err != nil {
		bx.Become(cove.StatePaused)
		return errors.Join(err, g.own().MoveSandbox(context.WithoutCancel(ctx), id, cove.StateRunning, cove.StatePaused, ""))
	}
	return nil
}
