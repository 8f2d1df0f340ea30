package sandbox

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Create makes a long-lived sandbox for a principal, and starts it. progress receives the steps. On error, and when ctx
// ends before, nothing of it is left. Errors: InvalidArgument, NotFound, Forbidden, Conflict, Unsupported,
// ImageMissing, StorageFull, Unavailable.
func (s *Sandboxes) Create(ctx context.Context, who cove.Principal, q Request,
	progress func(workspace.Step)) (made View, err error) {
	if progress == nil {
		progress = func(workspace.Step) {}
	}
	record, err := s.Plan(who, q)
	if err != nil {
		return made, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.atEnd(cancel)()
	switch {
	case q.Shared:
		return s.checkOut(ctx, record, q, progress)
	case q.Ensure:
		return s.ensure(ctx, record, q, progress)
	}
	return s.create(ctx, record, q, progress)
}

// ensure returns the owner's sandbox of the name of a planned one: the existing one, waited for while it is being made
// and started if it does not run, or else a new one. Of several concurrent requests one makes it. What else the
// request says applies to a new one alone.
func (s *Sandboxes) ensure(ctx context.Context, record store.Sandbox, q Request,
	progress func(workspace.Step)) (View, error) {
	for {
		found, err := s.named(ctx, record.Owner, record.Name)
		if cove.ErrorCode(err) == cove.NotFound {
			made, err := s.create(ctx, record, q, progress)
			if cove.ErrorCode(err) != cove.Conflict {
				return made, err
			}
			if _, none := s.named(ctx, record.Owner, record.Name); none != nil {
				return made, err // it is not about the name
			}
			continue
		}
		if err != nil {
			return View{}, err
		}
		if found.State == cove.StateFailed { // it was to be destroyed, and could not be removed
			progress(workspace.Step{Text: "removing what is left of the earlier one"})
			if _, err := s.destroy(ctx, record.Owner, found, found.Spec.KeepWork); err != nil &&
				cove.ErrorCode(err) != cove.NotFound {
				return View{}, err
			}
			continue
		}
		begin, doing := s.Start, "waiting for the sandbox, which is "+string(found.State)
		switch found.State {
		case cove.StateRunning:
			doing = ""
		case cove.StatePaused:
			begin, doing = s.Resume, "resuming the sandbox"
		case cove.StateStopped:
			doing = "starting the sandbox"
		}
		if doing != "" {
			progress(workspace.Step{Text: doing})
		}
		running, err := begin(ctx, record.Owner, string(found.ID))
		switch cove.ErrorCode(err) {
		case cove.NotFound: // it is gone: it was being destroyed, or could not be made
		case cove.Conflict: // another caller has changed its state meanwhile
			now, gone := s.named(ctx, record.Owner, record.Name)
			if gone == nil && now.ID == found.ID && now.State == found.State {
				return running, err
			}
		default:
			return running, err
		}
	}
}
