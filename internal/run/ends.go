package run

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
	maxWaiting     = 1000     // ends that wait for the store
	maxWaitingText = 16 << 20 // bytes of their records
)

// end is how a run has ended.
type end struct {
	run      store.Run
	recorded func() // called once it is in the store
}

// ends writes how runs have ended to the store. An end that cannot be written now waits for the next time that the
// store can be written to. One that found no place is concluded anew by Reconcile, as if its server had died.
type ends struct {
	store   store.Vault
	log     *slog.Logger
	writing sync.Mutex // held while those that wait are written; taken before mu

	mu      sync.Mutex
	waiting map[cove.RunID]end // guarded by mu
}

func newEnds(s store.Vault, log *slog.Logger) *ends {
	return &ends{store: s, log: log, waiting: map[cove.RunID]end{}}
}

// record writes an end, which waits if it cannot be written, and then those that wait.
func (s *ends) record(e end) {
	err := s.write(e)
	if err == nil {
		s.retry() // an error is that of the next attempt
		return
	}
	s.log.Error("how a run has ended cannot be recorded", "run", e.run.ID, "error", err)
	if cove.ErrorCode(err) != cove.NotFound {
		s.wait(e)
	}
}

// write writes an end, also when the caller of its run has left. recorded runs beside it, since it may ask a guest that
// does not answer.
func (s *ends) write(e end) error {
	err := s.store.For(e.run.Owner()).ChangeRun(context.Background(), e.run.ID, func(r *store.Run) error {
		*r = e.run
		return nil
	})
	if err == nil {
		go e.recorded()
	}
	return err
}

// wait keeps an end for the store, the whole of it while those that wait have room for it.
func (s *ends) wait(e end) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxWaiting {
		s.log.Error("too many ends of runs wait for the history", "run", e.run.ID, "waiting", len(s.waiting))
		return
	}
	size := e.run.Size()
	for _, other := range s.waiting {
		size += other.run.Size()
	}
	if size > maxWaitingText {
		e.run = e.run.Shortened()
	}
	s.waiting[e.run.ID] = e
}

// retry writes the ends that wait, until the store cannot be written to. One that it refuses for another reason goes on
// waiting.
func (s *ends) retry() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.waiting))
	s.mu.Unlock()
	for _, e := range all {
		switch err := s.write(e); cove.ErrorCode(err) {
		case "", cove.NotFound:
		case cove.StorageFull, cove.Unavailable:
			return err
		default:
			s.log.Error("how a run has ended cannot be recorded", "run", e.run.ID, "error", err)
			continue
		}
		s.mu.Lock()
		delete(s.waiting, e.run.ID)
		s.mu.Unlock()
	}
	return nil
}

// known is a stored record as it is known here: one that is recorded as running, and has ended, with its end.
func (s *ends) known(r store.Run) store.Run {
	if r.Status != store.RunRunning {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, waits := s.waiting[r.ID]; waits {
		r, r.Unrecorded = e.run, true
	}
	return r
}

func (s *ends) has(id cove.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.waiting[id]
	return waits
}
