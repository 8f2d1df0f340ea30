package execution

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
)

// Job is work of another service that is an execution for its caller: an agent's task.
type Job struct {
	Language string
	Code     []byte
	Spec     cove.Spec // of its sandbox, as far as the request states it
	// Do does the work, whose output goes to out, and returns how it ended; its output and its id need not be in that. The
	// end of ctx is to end the work: by Kill, or because the caller went away.
	Do func(ctx context.Context, id cove.ExecutionID, out process.Output) (Result, error)
}

// Do does a job of the principal's as an execution: it takes a place, is recorded, and may be followed and killed. out,
// which may be nil, receives the output as it comes. As with Execute, an error means that the work could not be done.
func (x *Executions) Do(ctx context.Context, who cove.Principal, j Job, out process.Output) (r Result, err error) {
	if err := x.call(); err != nil {
		return Result{}, err
	}
	defer x.calls.Done()
	t, err := x.enter(ctx, who, j.Spec.Limits.Timeout)
	if err != nil {
		return Result{}, err
	}
	defer x.queue.leave(t)
	x.queue.rest(t) // it waits for a model more than it computes
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &execution{executions: x, id: cove.NewExecutionID(), who: who, dismissed: make(chan struct{}), cancel: cancel,
		request: Request{Spec: j.Spec, Language: j.Language, Code: j.Code}, runtime: runtime.Runtime{Name: j.Language},
		limits: j.Spec.Limits,
		output: newCollector(x.o.Spool, who, out, store.MaxOutput, store.MaxOutput)}
	e.register()
	defer x.dismiss(e)
	defer func() {
		if err != nil {
			e.output.kept.Release()
		}
	}()
	entry := x.entry(e, x.o.Clock.Now().UTC().Truncate(time.Microsecond))
	if err := x.o.Store.For(who).Begin(ctx, entry); err != nil {
		return Result{}, err
	}
	r, err = j.Do(ctx, e.id, jobOutput{e.output})
	if err != nil && ctx.Err() != nil {
		r, err = Result{Killed: true}, nil
	}
	if r.Shutdown {
		e.end(endShutdown)
	}
	if r.Killed {
		e.markEnded(&r)
	}
	r.ID, r.Language, r.Labels, r.Started = e.id, j.Language, j.Spec.Labels, entry.CreatedAt
	if r.Truncated = e.output.overrun(); err == nil {
		r.Output = e.output.kept
	}
	if r.Killed || r.Limit == cove.LimitTimeout {
		r.ExitCode = -1
	}
	entry.Spec.Limits = r.Limits
	r.Unrecorded = !x.finish(ctx, e, entry, r, err)
	return r, err
}

// jobOutput keeps what a job writes, and passes it on.
type jobOutput struct{ *collector }

func (o jobOutput) Stdout(p []byte) error { return o.writeStdout(p) }
func (o jobOutput) Stderr(p []byte) error { return o.writeStderr(p) }

// Holds implements Asked.
func (o jobOutput) Holds(all []approval.Hold) {
	if to, ok := o.to.(Asked); ok {
		to.Holds(all)
	}
}
