package execution

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cputime"
)

// Hold counts a run, a command or a terminal of the principal's among what it has at once, until release is called; one
// that goes on already is counted in any case. Errors: Overloaded.
func (x *Executions) Hold(ctx context.Context, who cove.Principal, already bool) (release func(), err error) {
	if !already {
		if err := x.Spare(ctx, who); err != nil {
			return nil, err
		}
	}
	return x.queue.hold(who, already)
}

// Charge returns a context whose work is for a principal, as that of git on the host. Its CPU time counts among what
// the principal has used once done is called.
func (x *Executions) Charge(ctx context.Context, who cove.Principal) (charged context.Context, done func()) {
	if !x.o.Grants.Of(who).CountsCPU() {
		return ctx, func() {}
	}
	var m cputime.Meter
	return m.In(ctx), func() {
		if m.Used() == 0 {
			return
		}
		err := x.o.Store.For(who).AddCPU(context.WithoutCancel(ctx), x.o.Clock.Now(), m.Used())
		if err != nil {
			x.o.Log.Warn("the CPU time of work for a caller is not counted", "client", who.String(), "error", err)
		}
	}
}

// enter waits for a place of the principal's, no longer than its execution may run. Its CPU time is looked at
// again after the wait: what ran meanwhile has used some. Errors: Overloaded, Canceled, Unavailable.
func (x *Executions) enter(ctx context.Context, who cove.Principal, timeout time.Duration) (*turn, error) {
	if err := x.Spare(ctx, who); err != nil {
		return nil, err
	}
	t, err := x.queue.enter(ctx, who, timeout)
	if err != nil {
		return nil, err
	}
	if err := x.Spare(ctx, who); err != nil {
		x.queue.leave(t)
		return nil, err
	}
	return t, nil
}

// Spare refuses work where the principal's CPU time is used up, by what was recorded. Errors: Overloaded.
func (x *Executions) Spare(ctx context.Context, who cove.Principal) error {
	return x.o.Grants.Of(who).SpareCPU(x.o.Clock.Now(), func(since time.Time) (time.Duration, error) {
		return x.o.Store.For(who).CPUTime(ctx, since)
	})
}
