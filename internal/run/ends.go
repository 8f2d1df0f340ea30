package run

import (
	"context"
	"log/slog"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/backlog"
)

// end is how a run has ended.
type end struct {
	run      store.Run
	recorded func() // called once it is in the store
}

// ends writes how runs have ended to the store. An end that found no place among those that wait is concluded anew by
// Reconcile, as if its server had died.
type ends struct {
	*backlog.Backlog[cove.RunID, end]
}

func newEnds(s store.Vault, log *slog.Logger) ends {
	return ends{backlog.New(backlog.Options[cove.RunID, end]{
		Name: "the end of a run", Log: log,
		// recorded runs beside it, since it may ask a guest that does not answer.
		Write: func(ctx context.Context, e end) error {
			err := s.For(e.run.Owner()).ChangeRun(ctx, e.run.ID, func(r *store.Run) error {
				*r = e.run
				return nil
			})
			if err == nil {
				go e.recorded()
			}
			return err
		},
		Size:    func(e end) int { return e.run.Size() },
		Shorten: func(e end) end { e.run = e.run.Shortened(); return e },
		Most:    1000, MostBytes: 16 << 20,
	})}
}

// record writes an end, also when the caller of its run has left, and then those that wait.
func (s ends) record(e end) {
	if s.Record(context.Background(), e.run.ID, e) {
		s.Retry(context.Background()) // an error is that of the next attempt
	}
}

// known is a stored record as it is known here: one that is recorded as running, and has ended, with its end.
func (s ends) known(r store.Run) store.Run {
	if r.Status != store.RunRunning {
		return r
	}
	if e, waits := s.Waiting(r.ID); waits {
		r, r.Unrecorded = e.run, true
	}
	return r
}

func (s ends) has(id cove.RunID) bool {
	_, waits := s.Waiting(id)
	return waits
}
