package execution

import (
	"context"
	"maps"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// maxWaiting bounds the outcomes that wait for the store. They have no output.
const maxWaiting = 10_000

// record writes an outcome to the store, and reports whether it is there. One that cannot be written now waits without
// its output, for the next time that the store can be written to.
func (x *Executions) record(ctx context.Context, o outcome) bool {
	err := x.o.Store.For(o.end.Owner).Finish(context.WithoutCancel(ctx), o.end, o.line)
	if err == nil {
		x.recordWaiting(ctx)
		return true
	}
	x.o.Log.Error("cannot record the end of an execution", "execution", o.end.ID, "error", err)
	if final(err) {
		return false
	}
	if o.end.Output != "" || o.end.Stderr != "" {
		o.end.Output, o.end.Stderr, o.end.OutputGone = "", "", store.GoneStorageFull
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) < maxWaiting {
		x.waiting[o.end.ID] = o
	}
	return false
}

// final reports whether an outcome can never be recorded: its execution is not in the store, or ended there already.
func final(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict
}

// recordWaiting writes the outcomes that wait, until one fails.
func (x *Executions) recordWaiting(ctx context.Context) {
	x.mu.Lock()
	all := slices.Collect(maps.Values(x.waiting))
	x.mu.Unlock()
	for _, o := range all {
		err := x.o.Store.For(o.end.Owner).Finish(context.WithoutCancel(ctx), o.end, o.line)
		if err != nil && !final(err) {
			return
		}
		x.mu.Lock()
		delete(x.waiting, o.end.ID)
		x.mu.Unlock()
	}
}

// Known returns a stored record as it is known here: one that is recorded as running, and has ended, with its end.
func (x *Executions) Known(e store.Execution) store.Execution {
	if e.Status != cove.StatusRunning {
		return e
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if o, ended := x.waiting[e.ID]; ended {
		return o.end
	}
	return e
}
