package sandbox

import (
	"cmp"
	"context"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/store"
)

// Start starts a stopped sandbox. A running one stays as it is. Errors: NotFound, Conflict, and those of Create.
func (s *Sandboxes) Start(ctx context.Context, who cove.Principal, ref string) (View, error) {
	found, err := s.find(ctx, who, ref)
	if err != nil {
		return View{}, err
	}
	started, err := s.start(ctx, who, found.box())
	if err == nil && found.Within != "" {
		return s.Find(ctx, who, string(found.ID))
	}
	return started, err
}

func (s *Sandboxes) start(ctx context.Context, who cove.Principal, id cove.SandboxID) (View, error) {
	return s.live(ctx, who, string(id), "start", func(r *resident, record *store.Sandbox) error {
		switch bx, _ := s.running(r); {
		case record.State == cove.StateRunning && bx != nil:
			return errAlready
		case record.State == cove.StateRunning:
			return s.adopt(ctx, r, record)
		case record.State != cove.StateStopped:
			return wrongState(*record, "start")
		}
		ws, err := s.host.Workspaces.Open(ctx, record.ID)
		if err != nil {
			return err
		}
		if err := s.bring(ctx, r, record, ws); err != nil {
			return err
		}
		if err := s.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StateStopped, cove.StateRunning, ""); err != nil {
			return errors.Join(err, s.vacate(r))
		}
		return nil
	})
}

// Stop ends the processes of a sandbox. Its workspace and home stay; the rest of its files goes. A stopped one stays as
// it is. Errors: NotFound, Conflict.
func (s *Sandboxes) Stop(ctx context.Context, who cove.Principal, ref string) (View, error) {
	return s.live(ctx, who, ref, "stop", func(r *resident, record *store.Sandbox) error {
		switch record.State {
		case cove.StateStopped:
			return errAlready
		case cove.StateRunning, cove.StatePaused:
		default:
			return wrongState(*record, "stop")
		}
		if bx, _ := s.running(r); bx == nil {
			if err := s.adopt(ctx, r, record); err != nil && cove.ErrorCode(err) != cove.NotFound {
				return err
			}
			if record.State == cove.StateStopped {
				return nil
			}
		}
		bx, _ := s.running(r)
		if bx == nil {
			return s.o.Store.For(who).MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, "")
		}
		if record.State == cove.StateRunning {
			s.askToEnd(ctx, bx)
		}
		if err := s.vacate(r); err != nil {
			return err
		}
		return s.o.Store.For(who).MoveSandbox(context.WithoutCancel(ctx), record.ID, record.State, cove.StateStopped, "")
	})
}

// Pause freezes a sandbox: nothing in it runs, and its memory is kept. Errors: NotFound, Conflict, Unsupported.
func (s *Sandboxes) Pause(ctx context.Context, who cove.Principal, ref string) (View, error) {
	return s.live(ctx, who, ref, "pause", func(r *resident, record *store.Sandbox) error {
		bx, _ := s.running(r)
		switch {
		case record.State == cove.StatePaused:
			return errAlready
		case record.State != cove.StateRunning || bx == nil:
			return wrongState(*record, "pause")
		}
		pauser, ok := bx.Sandbox.(engine.Pauser)
		if !ok {
			return cove.Errorf(cove.Unsupported, "the engine %s cannot pause", record.Spec.Engine).
				WithHint("stop the sandbox instead")
		}
		// It is frozen first: a server that finds a frozen sandbox recorded as running lets it run.
		if err := pauser.Pause(ctx); err != nil {
			return err
		}
		if err := s.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StateRunning, cove.StatePaused, ""); err != nil {
			return errors.Join(err, pauser.Resume(context.WithoutCancel(ctx)))
		}
		bx.Become(cove.StatePaused)
		return nil
	})
}

// Resume continues a paused sandbox. Errors: NotFound, Conflict.
func (s *Sandboxes) Resume(ctx context.Context, who cove.Principal, ref string) (View, error) {
	return s.live(ctx, who, ref, "resume", func(r *resident, record *store.Sandbox) error {
		switch record.State {
		case cove.StateRunning:
			return errAlready
		case cove.StatePaused:
		default:
			return wrongState(*record, "resume")
		}
		bx, _ := s.running(r)
		if bx == nil {
			return s.adopt(ctx, r, record)
		}
		if err := s.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StatePaused, cove.StateRunning, ""); err != nil {
			return err
		}
		bx.Become(cove.StateRunning)
		if err := bx.Sandbox.(engine.Pauser).Resume(ctx); err != nil {
			bx.Become(cove.StatePaused)
			return errors.Join(err, s.o.Store.For(who).MoveSandbox(context.WithoutCancel(ctx), record.ID, cove.StateRunning,
				cove.StatePaused, ""))
		}
		return nil
	})
}

// Rename changes the name of a sandbox. Decisions about its network carry the old name until the next start. Errors:
// NotFound, InvalidArgument, Conflict.
func (s *Sandboxes) Rename(ctx context.Context, who cove.Principal, ref, name string) (View, error) {
	if err := CheckName(name); err != nil {
		return View{}, err
	}
	if found, err := s.find(ctx, who, ref); err == nil && found.Within != "" {
		return s.renameCheckout(ctx, who, found, name)
	}
	return s.live(ctx, who, ref, "rename", func(r *resident, record *store.Sandbox) error {
		if err := s.o.Store.For(who).ChangeSandbox(ctx, record.ID,
			func(b *store.Sandbox) error { b.Name = name; return nil }); err != nil {
			return err
		}
		s.mu.Lock()
		way := r.open.way
		s.mu.Unlock()
		if way != nil {
			way.Rename(name)
		}
		return nil
	})
}

// Destroy removes a sandbox in whatever state; with keepWork its checkout stays in place. ref may also be the id of an
// orphan. Errors: NotFound, Unavailable.
func (s *Sandboxes) Destroy(ctx context.Context, who cove.Principal, ref string, keepWork bool) error {
	found, err := s.find(ctx, who, ref)
	if cove.ErrorCode(err) == cove.NotFound && who.IsOwner() {
		return s.destroyOrphan(ctx, who, ref, keepWork, err)
	}
	if err != nil {
		return err
	}
	if keepWork && found.shared() {
		return cove.Errorf(cove.Unsupported, "the work of %s is in a sandbox that is shared, and goes with it", found.Name).
			WithHint("push or apply it first, then destroy it without keeping it")
	}
	r, leave, err := s.enter(ctx, found.ID)
	if err != nil {
		return err
	}
	defer leave()
	if found.Within != "" {
		return s.destroyCheckout(ctx, who, r, found)
	}
	record, err := s.o.Store.For(who).Sandbox(ctx, found.ID)
	if err != nil {
		s.drop(r)
		return err
	}
	err = s.dismantle(context.WithoutCancel(ctx), r, record.ID, keepWork)
	for _, v := range append(checkoutsOf(record), View{Sandbox: record}) {
		s.auditLife(ctx, who, "destroy", v.Sandbox, err)
	}
	return err
}

// errAlready reports that nothing had to be done, so that nothing is recorded.
var errAlready = errors.New("it is so already")

// live finds a sandbox, waits for its turn, changes its life with f, and returns its state afterwards.
func (s *Sandboxes) live(ctx context.Context, who cove.Principal, ref string, action string,
	f func(*resident, *store.Sandbox) error) (View, error) {
	found, err := s.find(ctx, who, ref)
	if err == nil {
		err = found.alone(action)
	}
	if err != nil {
		return View{}, err
	}
	r, leave, err := s.enter(ctx, found.ID)
	if err != nil {
		return View{}, err
	}
	defer leave()
	record, err := s.current(ctx, who, found.ID) // as it is now
	if err != nil {
		s.drop(r)
		return View{}, err
	}
	if err = f(r, &record); !errors.Is(err, errAlready) {
		s.auditLife(ctx, who, action, record, err)
		if err != nil {
			return View{}, err
		}
		s.touch(ctx, found)
	}
	record, err = s.o.Store.For(who).Sandbox(ctx, record.ID)
	return View{Sandbox: record}, err
}

// List returns the sandboxes of a principal, newest first, and to the machine's owner the orphans, which belong to no
// sandbox.
func (s *Sandboxes) List(ctx context.Context, who cove.Principal) (Listing, error) {
	all, err := s.all(ctx, who)
	list := Listing{Sandboxes: all}
	if err == nil && who.IsOwner() && s.owns() == nil {
		list.Orphans, err = s.orphans(ctx, all)
	}
	return list, err
}

// Find returns a sandbox with its use of the disk. Errors: NotFound, Conflict when ref fits several.
func (s *Sandboxes) Find(ctx context.Context, who cove.Principal, ref string) (View, error) {
	shown, err := s.find(ctx, who, ref)
	if err != nil {
		return View{}, err
	}
	if in, err := s.inside(ctx, who, string(shown.ID)); err == nil {
		shown.Terminals = infosOf(in.terminals)
	}
	if s.owns() == nil {
		if shown.DiskUsed, err = s.host.Workspaces.Used(ctx, shown.ID); cove.ErrorCode(err) == cove.NotFound {
			err = nil
		}
	}
	return shown, err
}

// Extend adds to the network of a sandbox, at once and for each start. documents are those of change. Errors: NotFound,
// InvalidArgument, Conflict when it has no network.
func (s *Sandboxes) Extend(ctx context.Context, who cove.Principal, ref string, change store.NetworkChange,
	documents []*policy.Document) (cut int, err error) {
	_, err = s.live(ctx, who, ref, "network", func(r *resident, record *store.Sandbox) error {
		if cmp.Or(record.Spec.Mode, cove.NetworkNone) == cove.NetworkNone {
			return cove.Errorf(cove.Conflict, "the sandbox %s has no network", record.Name).
				WithHint("make one with --network or --allow")
		}
		if _, open := s.running(r); open.way != nil {
			if cut, err = open.way.Extend(documents...); err != nil {
				return err
			}
		}
		return s.change(ctx, record, func(s *store.SandboxSpec) { s.Changes = append(s.Changes, change) })
	})
	return cut, err
}

// Certificate returns the certificate authority that a sandbox trusts, as PEM. Errors: NotFound, Conflict when it does
// not run or has no network.
func (s *Sandboxes) Certificate(ctx context.Context, who cove.Principal, ref string) ([]byte, error) {
	record, err := s.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.held[record.ID]; r != nil && r.open.way != nil {
		return r.open.way.Certificate(), nil
	}
	return nil, cove.Errorf(cove.Conflict, "the sandbox %s has no network, or does not run", record.Name)
}
