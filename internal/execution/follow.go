package execution

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

// Follow hands out the output of a running execution from a position on: what is there at once, standard output first,
// and the rest as it comes. It returns when the execution is recorded and everything is handed out. begun is called
// before anything is. A slow out does not slow the program. Errors: NotFound; Conflict when it has ended or runs in
// another process of Cove; those of out and of ctx.
func (x *Executions) Follow(ctx context.Context, who cove.Principal, id cove.ExecutionID, from Position, begun func(),
	out process.Output) error {
	e, err := x.find(ctx, who, id)
	if err == nil && !e.output.kept.Hold() { // it has ended meanwhile
		err = x.endedOrElsewhere(ctx, who, id)
	}
	if err != nil {
		return err
	}
	defer e.output.kept.Release()
	begun()
	for ended := false; ; {
		news := e.output.more()
		if err := handOut(e.output.kept.Stdout(), &from.Stdout, out.Stdout); err != nil {
			return err
		}
		if err := handOut(e.output.kept.Stderr(), &from.Stderr, out.Stderr); err != nil {
			return err
		}
		if ended {
			return nil
		}
		select {
		case <-news:
		case <-e.dismissed:
			ended = true
		case <-ctx.Done():
			return cove.Errorf(cove.Canceled, "the follower went away: %w", ctx.Err())
		}
	}
}

// handOut writes what is kept of a stream from a place on, and moves the place.
func handOut(s *spool.Stream, from *int64, write func([]byte) error) error {
	for p, err := range s.Chunks(*from) {
		if err != nil {
			return cove.Errorf(cove.Internal, "the output cannot be read again: %w", err)
		}
		if err := write(p); err != nil {
			return err
		}
		*from += int64(len(p))
	}
	return nil
}

// find returns an execution of the principal's that runs in this process. Errors: NotFound,
// Conflict when it has ended or runs in another one.
func (x *Executions) find(ctx context.Context, who cove.Principal, id cove.ExecutionID) (*execution, error) {
	x.mu.Lock()
	e := x.running[id]
	x.mu.Unlock()
	if e != nil {
		if !who.Sees(e.who) {
			return nil, store.NoExecution(id)
		}
		return e, nil
	}
	return nil, x.endedOrElsewhere(ctx, who, id)
}

// endedOrElsewhere returns the reason why a stored execution does not run in this process.
func (x *Executions) endedOrElsewhere(ctx context.Context, who cove.Principal, id cove.ExecutionID) error {
	stored, err := x.o.Store.For(who).Get(ctx, id)
	if err != nil {
		return err
	}
	if stored.Status == cove.StatusRunning {
		return cove.Errorf(cove.Conflict, "execution %s runs in another process of Cove", id).
			WithHint("the command line on that machine finds it")
	}
	return cove.Errorf(cove.Conflict, "execution %s has ended already (%s)", id, stored.Status)
}
