package sandbox

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

// Reap removes what instances that are gone have left: on the host, through
// each engine in use, and in the store, where their executions are marked as
// failed. It also removes executions beyond their retention. The files of a
// dead instance go last, so that a failure leaves them for the next time.
func (m *Manager) Reap(ctx context.Context) error {
	known, err := instance.List(m.o.RunDir)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "cannot list the instances: %w", err)
	}
	var dead []cove.InstanceID
	for _, id := range known {
		if m.gone(id) {
			dead = append(dead, id)
		}
	}
	var errs []error
	for _, eng := range m.o.Engines.Opened() {
		swept, err := eng.Sweep(ctx)
		errs = append(errs, err)
		if len(swept.Items) > 0 {
			m.o.Log.Info("removed what a dead process had left", "engine", eng.Name(), "items", swept.Items)
			m.audit(ctx, cove.System(""), store.Record{Action: "sweep", Object: eng.Name(), Verdict: "ok", Detail: "removed what a dead process had left"})
		}
	}
	errs = append(errs, m.Abandon(ctx))
	if m.o.Retention > 0 {
		_, err = m.own().Prune(ctx, m.today().Add(-m.o.Retention))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, id := range dead {
		instance.Forget(m.o.RunDir, id)
	}
	return nil
}

// Abandon marks the executions of processes that are gone as failed.
func (m *Manager) Abandon(ctx context.Context) error {
	_, err := m.own().Abandon(ctx, m.gone)
	return err
}

func (m *Manager) gone(id cove.InstanceID) bool {
	return id != m.o.Instance && !instance.Alive(m.o.RunDir, id)
}

// today is the wall clock's time, unless it has jumped ahead since the manager
// was made: a jump must not take the history with it.
func (m *Manager) today() time.Time {
	now, expected := m.o.Clock.Now(), m.born.Add(m.o.Clock.Since(m.began))
	if expected.Before(now) {
		return expected
	}
	return now
}

// RunReaper reaps now and at every ReapInterval until ctx ends.
func (m *Manager) RunReaper(ctx context.Context) {
	for {
		if err := m.Reap(ctx); err != nil && ctx.Err() == nil {
			m.o.Log.Error("cannot clean up", "error", err)
		}
		if m.owns() == nil {
			m.reconcile(ctx) // which logs what it cannot do
		}
		timer := m.o.Clock.NewTimer(ReapInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
