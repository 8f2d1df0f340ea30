package execution

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/store"
)

// followChunk bounds what Follow hands out at once, in bytes.
const followChunk = 32 << 10

// Follow hands out the output of a running execution from a position on: what is there at once, standard output first,
// and the rest as it comes. It returns when the execution is recorded and everything is handed out. begun is called
// before anything is. A slow out does not slow the program. Errors: NotFound; Conflict when it has ended or runs in
// another process of Cove; those of out and of ctx.
func (x *Executions) Follow(ctx context.Context, who cove.Principal, id cove.ExecutionID, from Position, begun func(),
	out process.Output) error {
	e, err := x.find(ctx, who, id)
	if err != nil {
		return err
	}
	begun()
	for ended := false; ; {
		stdout, stderr, news := e.output.after(from)
		from.Stdout += int64(len(stdout))
		from.Stderr += int64(len(stderr))
		if err := inChunks(stdout, out.Stdout); err != nil {
			return err
		}
		if err := inChunks(stderr, out.Stderr); err != nil {
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

func inChunks(p []byte, write func([]byte) error) error {
	for len(p) > 0 {
		n := min(len(p), followChunk)
		if err := write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
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
	stored, err := x.o.Store.For(who).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if stored.Status == cove.StatusRunning {
		return nil, cove.Errorf(cove.Conflict, "execution %s runs in another process of Cove", id).
			WithHint("the command line on that machine finds it")
	}
	return nil, cove.Errorf(cove.Conflict, "execution %s has ended already (%s)", id, stored.Status)
}
