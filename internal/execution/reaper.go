package execution

import (
	"context"
	"errors"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/store"
)

// ReapInterval is how often a server looks for what crashes have left.
const ReapInterval = 5 * time.Minute

// Reap removes what instances that are gone have left: on the host, through each engine in use, and in the store, where
// their executions are marked as failed. It also removes executions beyond their retention. The files of a dead
// instance go last, so that a failure leaves them for the next time.
func (x *Executions) Reap(ctx context.Context) error {
	known, err := instance.List(x.o.RunDir)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "cannot list the instances: %w", err)
	}
	var dead []cove.InstanceID
	for _, id := range known {
		if x.gone(id) {
			dead = append(dead, id)
		}
	}
	var errs []error
	for _, eng := range x.o.Engines.Opened() {
		swept, err := eng.Sweep(ctx)
		errs = append(errs, err)
		if len(swept.Items) > 0 {
			x.o.Log.Info("removed what a dead process had left", "engine", eng.Name(), "items", swept.Items)
			x.Audit(ctx, cove.System(""), store.Record{Action: "sweep", Object: eng.Name(), Verdict: "ok",
				Detail: "removed what a dead process had left"})
		}
	}
	x.outcomes.recordWaiting(ctx)
	errs = append(errs, x.Abandon(ctx))
	var before time.Time // none is outdated
	if x.o.Retention > 0 {
		before = x.today().Add(-x.o.Retention)
	}
	_, err = x.own().Prune(ctx, before)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, id := range dead {
		instance.Forget(x.o.RunDir, id)
	}
	return nil
}

// Abandon marks the executions of processes that are gone as failed.
func (x *Executions) Abandon(ctx context.Context) error {
	_, err := x.own().Abandon(ctx, x.gone)
	return err
}

func (x *Executions) gone(id cove.InstanceID) bool {
	return id != x.o.Instance && !instance.Alive(x.o.RunDir, id)
}

// today is the wall clock's time, unless it has jumped ahead since x
// was made: a jump must not take the history with it.
func (x *Executions) today() time.Time {
	now, expected := x.o.Clock.Now(), x.born.Add(x.o.Clock.Since(x.began))
	if expected.Before(now) {
		return expected
	}
	return now
}

// RunReaper reaps now and at every ReapInterval until ctx ends.
func (x *Executions) RunReaper(ctx context.Context) {
	for {
		if err := x.Reap(ctx); err != nil && ctx.Err() == nil {
			x.o.Log.Error("cannot clean up", "error", err)
		}
		timer := x.o.Clock.NewTimer(ReapInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
