package execution

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	maxWaiting       = 10_000   // outcomes that wait for the store
	maxWaitingOutput = 16 << 20 // bytes of their output
)

// outcome is how an execution ended, with its line of the audit log.
type outcome struct {
	end  store.Execution
	line store.Record
}

// size is how many bytes of output an outcome holds.
func (o outcome) size() int { return len(o.end.Output) + len(o.end.Stderr) }

// outcomes writes outcomes to the store. One that cannot be written now waits for the next time that the store can be
// written to.
type outcomes struct {
	store   store.Vault
	log     *slog.Logger
	writing sync.Mutex // held while those that wait are written; taken before mu

	mu      sync.Mutex
	waiting map[cove.ExecutionID]outcome // guarded by mu
}

func newOutcomes(s store.Vault, log *slog.Logger) *outcomes {
	return &outcomes{store: s, log: log, waiting: map[cove.ExecutionID]outcome{}}
}

// record writes an outcome, and reports whether it is in the store. Those that wait are then written by beside, which
// runs a function beside the caller.
func (s *outcomes) record(ctx context.Context, o outcome, beside func(func())) bool {
	err := s.write(ctx, o)
	if err == nil {
		s.retry(ctx, beside)
		return true
	}
	s.log.Error("cannot record the end of an execution", "execution", o.end.ID, "error", err)
	if !final(err) {
		s.wait(o)
	}
	return false
}

// write writes an outcome, also when the caller of its execution has left.
func (s *outcomes) write(ctx context.Context, o outcome) error {
	return s.store.For(o.end.Owner).Finish(context.WithoutCancel(ctx), o.end, o.line)
}

// final reports whether an outcome can never be recorded: its execution is not in the store, or ended there already.
func final(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict
}

// wait keeps an outcome for the store, with its output while those that wait have room for it.
func (s *outcomes) wait(o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxWaiting {
		s.log.Error("too many ends wait for the history, which will not have this one", "execution", o.end.ID,
			"waiting", len(s.waiting))
		return
	}
	size := o.size()
	for _, other := range s.waiting {
		size += other.size()
	}
	if size > maxWaitingOutput && o.size() > 0 {
		o.end.Output, o.end.Stderr, o.end.OutputGone = "", "", store.GoneStorageFull
	}
	s.waiting[o.end.ID] = o
}

// retry has beside write the outcomes that wait, unless that is under way.
func (s *outcomes) retry(ctx context.Context, beside func(func())) {
	s.mu.Lock()
	none := len(s.waiting) == 0
	s.mu.Unlock()
	if none || !s.writing.TryLock() {
		return
	}
	beside(func() {
		defer s.writing.Unlock()
		s.writeWaiting(ctx)
	})
}

// recordWaiting writes the outcomes that wait before it returns.
func (s *outcomes) recordWaiting(ctx context.Context) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.writeWaiting(ctx)
}

// writeWaiting writes the outcomes that wait, until one fails; s.writing is held.
func (s *outcomes) writeWaiting(ctx context.Context) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.waiting))
	s.mu.Unlock()
	for _, o := range all {
		if err := s.write(ctx, o); err != nil && !final(err) {
			return
		}
		s.mu.Lock()
		delete(s.waiting, o.end.ID)
		s.mu.Unlock()
	}
}

// known returns the end of an execution that waits for the store.
func (s *outcomes) known(id cove.ExecutionID) (end store.Execution, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, waits := s.waiting[id]
	return o.end, waits
}
