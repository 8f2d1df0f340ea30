package sandbox

import (
	"context"
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/store"
)

func (s *Sandboxes) start(ctx context.Context, who cove.Principal, id cove.SandboxID) (View, error) {
	return s.live(ctx, who, string(id), "start", func(r *resident, record *store.Sandbox) error {
		switch bx, _ := s.running(r); {
		case record.State == cove.StateRunning && bx != nil:
			if err := (group{s.supervisor}).raise(ctx, *record, nil, nil); err != nil {
				return err
			}
			return errAlready
		case record.State == cove.StateRunning:
			return s.adopt(ctx, r, record)
		case record.State != cove.StateStopped:
			return wrongState(*record, "start")
		}
		if err := s.o.Places.Spare(ctx, who); err != nil {
			return err
		}
		ws, err := s.host.Workspaces.Open(ctx, record.ID)
		if err != nil {
			return err
		}
		services := group{s.supervisor}
		if err = services.raise(ctx, *record, nil, nil); err == nil {
			err = s.bring(ctx, r, record, ws)
		}
		if err == nil {
			err = s.o.Store.For(who).MoveSandbox(ctx, record.ID, cove.StateStopped, cove.StateRunning, "")
		}
		if err != nil {
			err = errors.Join(err, s.vacate(r), services.halt(context.WithoutCancel(ctx), *record))
		}
		return err
	})
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
	return s.view(ctx, who, record.ID)
}

// Stop ends the processes of a sandbox, and then those of its services. Its workspace and home stay; the rest of its
// files goes. A stopped one stays as it is. Errors: NotFound, Conflict.
func (s *Sandboxes) Stop(ctx context.Context, who cove.Principal, ref string) (View, error) {
	var made []hostpath.Made
	stopped, err := s.live(ctx, who, ref, "stop", func(r *resident, record *store.Sandbox) (err error) {
		defer func() {
			made = s.tell(r)
			if err == nil {
				err = errors.Join(group{s.supervisor}.halt(context.WithoutCancel(ctx), *record), s.rest(r))
			}
		}()
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
	stopped.Made = made
	return stopped, err
}

// Pause freezes a sandbox and its services: nothing in them runs, and their memory is kept. Errors: NotFound,
// Conflict, Unsupported.
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
		services := group{s.supervisor}
		if err := services.freeze(ctx, bx, pauser, record.ID); err != nil {
			return err
		}
		return services.pause(ctx, *record)
	})
}

// Resume continues a paused sandbox, its services first. Errors: NotFound, Conflict.
func (s *Sandboxes) Resume(ctx context.Context, who cove.Principal, ref string) (View, error) {
	return s.live(ctx, who, ref, "resume", func(r *resident, record *store.Sandbox) error {
		switch record.State {
		case cove.StateRunning:
			return errAlready
		case cove.StatePaused:
		default:
			return wrongState(*record, "resume")
		}
		if err := s.o.Places.Spare(ctx, who); err != nil {
			return err
		}
		services := group{s.supervisor}
		if err := services.raise(ctx, *record, nil, nil); err != nil {
			return err
		}
		bx, _ := s.running(r)
		if bx == nil {
			return s.adopt(ctx, r, record)
		}
		return services.thaw(ctx, bx, record.ID)
	})
}
