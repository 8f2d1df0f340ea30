package execution

import (
	"context"
	"maps"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	maxWaiting       = 10_000   // outcomes that wait for the store
	maxWaitingOutput = 64 << 20 // bytes of their output
)

// record writes an outcome to the store, and reports whether it is there. One that cannot be written now waits for the
// next time that the store can be written to.
func (x *Executions) record(ctx context.Context, o outcome) bool {
	err := x.o.Store.For(o.end.Owner).Finish(context.WithoutCancel(ctx), o.end, o.line)
	if err == nil {
		x.retry(ctx)
		return true
	}
	x.o.Log.Error("cannot record the end of an execution", "execution", o.end.ID, "error", err)
	if final(err) {
		return false
	}
	x.wait(o)
	return false
}

// wait keeps an outcome for the store, with its output while those that wait have room for it.
func (x *Executions) wait(o outcome) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) >= maxWaiting {
		x.o.Log.Error("too many ends wait for the history, which will not have this one", "execution", o.end.ID,
			"waiting", len(x.waiting))
		return
	}
	size := o.size()
	for _, other := range x.waiting {
		size += other.size()
	}
	if size > maxWaitingOutput && o.size() > 0 {
		o.end.Output, o.end.Stderr, o.end.OutputGone = "", "", store.GoneStorageFull
	}
	x.waiting[o.end.ID] = o
}

// size is how many bytes of output an outcome holds.
func (o outcome) size() int { return len(o.end.Output) + len(o.end.Stderr) }

// final reports whether an outcome can never be recorded: its execution is not in the store, or ended there already.
func final(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict
}

// retry writes the outcomes that wait off the caller's path, unless that is under way. The caller is one that calls
// counts.
func (x *Executions) retry(ctx context.Context) {
	x.mu.Lock()
	none := len(x.waiting) == 0
	x.mu.Unlock()
	if none || !x.retrying.TryLock() {
		return
	}
	x.calls.Go(func() {
		defer x.retrying.Unlock()
		x.writeWaiting(ctx)
	})
}

// recordWaiting writes the outcomes that wait before it returns.
func (x *Executions) recordWaiting(ctx context.Context) {
	x.retrying.Lock()
	defer x.retrying.Unlock()
	x.writeWaiting(ctx)
}

// writeWaiting writes the outcomes that wait, until one fails. retrying is held.
func (x *Executions) writeWaiting(ctx context.Context) {
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
