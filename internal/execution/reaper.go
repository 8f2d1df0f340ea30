package execution

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	// ReapInterval is how often a server looks for what crashes have left.
	ReapInterval = 5 * time.Minute
	// soon is how often it looks while an engine may still make something for an instance that is dead.
	soon = 5 * time.Second
)

// Reap removes what instances that are gone have left: on the host, through each engine that is in use or that they
// have used, and in the store, where their executions are marked as failed. It also removes executions beyond their
// retention. The files of a dead instance go last, so that a failure leaves them for the next time.
func (x *Executions) Reap(ctx context.Context) error {
	_, unopened, err := x.reap(ctx)
	return errors.Join(append(slices.Collect(maps.Values(unopened)), err)...)
}

// reap is Reap, and reports whether more may appear soon. unopened are the engines that cannot be opened, by name; the
// error is the rest.
func (x *Executions) reap(ctx context.Context) (more bool, unopened map[string]error, err error) {
	known, err := instance.List(x.o.RunDir)
	if err != nil {
		return false, nil, cove.Errorf(cove.Unavailable, "cannot list the instances: %w", err)
	}
	var dead []cove.InstanceID
	for _, id := range known {
		if x.gone(id) {
			dead = append(dead, id)
		}
	}
	unfinished, more, unopened, err := openUsed(ctx, x.o, dead)
	var errs []error
	errs = append(errs, err)
	for _, eng := range x.o.Engines.Opened() {
		swept, err := eng.Sweep(ctx)
		errs = append(errs, err)
		if len(swept.Items) > 0 {
			x.o.Log.Info("removed what a dead process had left", "engine", eng.Name(), "items", swept.Items)
			x.Audit(ctx, cove.System(""), store.Record{Action: "sweep", Object: eng.Name(), Verdict: "ok",
				Detail: "removed what a dead process had left"})
		}
	}
	x.outcomes.Retry(ctx)
	errs = append(errs, x.Abandon(ctx))
	var before time.Time // none is outdated
	if x.o.Retention > 0 {
		before = x.today().Add(-x.o.Retention)
	}
	_, err = x.own().Prune(ctx, before)
	errs = append(errs, err)
	failed := errors.Join(errs...)
	for _, id := range dead {
		if failed == nil && !unfinished[id] {
			instance.Forget(x.o.RunDir, id)
		}
	}
	return more, unopened, failed
}

// openUsed opens the engines that dead instances have used. It returns the instances of which something may be left
// after a sweep: the engine cannot be opened, which is in unopened by its name, or more may appear soon.
func openUsed(ctx context.Context, o Options, dead []cove.InstanceID) (unfinished map[cove.InstanceID]bool, more bool,
	unopened map[string]error, err error) {
	unfinished, unopened = map[cove.InstanceID]bool{}, map[string]error{}
	var errs []error
	for _, id := range dead {
		for _, name := range instance.Noted(o.RunDir, id) {
			if unopened[name] != nil {
				unfinished[id] = true
				continue
			}
			if !slices.Contains(o.Engines.Names(), name) {
				continue // there is no such engine any more
			}
			eng, err := o.Engines.GetUntil(ctx, name)
			if err != nil {
				unfinished[id] = true
				unopened[name] = cove.Errorf(cove.Unavailable,
					"what a dead process may have left with the engine %s cannot be removed: %w", name, err)
				continue
			}
			if late, ok := eng.(engine.Late); ok {
				since, err := instance.FoundDead(o.RunDir, id)
				errs = append(errs, err)
				if o.Clock.Now().Sub(since) < late.Lateness() {
					unfinished[id], more = true, true
				}
			}
		}
	}
	return unfinished, more, unopened, errors.Join(errs...)
}

// Abandon marks the executions of processes that are gone as failed, and records that in the audit log.
func (x *Executions) Abandon(ctx context.Context) error {
	_, err := x.own().Abandon(ctx, store.Record{Time: x.o.Clock.Now().UTC(), Action: "execute", Verdict: "error",
		Detail: "the Cove process that ran it ended before its end was recorded"}, x.gone)
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
	told := map[string]bool{} // of the engines that cannot be opened: it may be so for ever
	for {
		more, unopened, err := x.reap(ctx)
		for name, err := range unopened {
			if !told[name] && ctx.Err() == nil {
				x.o.Log.Error("cannot clean up", "error", err)
				told[name] = true
			}
		}
		if err != nil && ctx.Err() == nil {
			x.o.Log.Error("cannot clean up", "error", err)
		}
		interval := ReapInterval
		if more {
			interval = soon
		}
		timer := x.o.Clock.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
