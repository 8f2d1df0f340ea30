package execution

import (
	"context"
	"log/slog"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/backlog"
)

// outcome is how an execution ended, with its line of the audit log.
type outcome struct {
	end  store.Execution
	line store.Record
}

// size is how many bytes of output an outcome holds.
func (o outcome) size() int { return len(o.end.Output) + len(o.end.Stderr) }

// shortened returns the outcome without its output. It is pure.
func (o outcome) shortened() outcome {
	if o.size() > 0 {
		o.end.Output, o.end.Stderr, o.end.OutputGone = "", "", store.GoneStorageFull
	}
	return o
}

// outcomes writes outcomes to the store.
type outcomes struct {
	*backlog.Backlog[cove.ExecutionID, outcome]
}

func newOutcomes(s store.Vault, log *slog.Logger) outcomes {
	return outcomes{backlog.New(backlog.Options[cove.ExecutionID, outcome]{
		Name: "the end of an execution", Log: log,
		Write: func(ctx context.Context, o outcome) error { // also when the caller of its execution has left
			return s.For(o.end.Owner).Finish(context.WithoutCancel(ctx), o.end, o.line)
		},
		Size: outcome.size, Shorten: outcome.shortened,
		Most: 10_000, MostBytes: 16 << 20,
	})}
}

// record writes an outcome, and reports whether it is in the store. Those that wait are then written by beside, which
// runs a function beside the caller.
func (s outcomes) record(ctx context.Context, o outcome, beside func(func())) bool {
	recorded := s.Record(ctx, o.end.ID, o)
	if recorded {
		s.RetryBeside(ctx, beside)
	}
	return recorded
}
