package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
)

// RecorderOptions configure a Recorder. All except Observe are required.
type RecorderOptions struct {
	Store   store.Vault
	Keep    int                     // maximum of decisions in the store
	Observe func(decision.Decision) // receives each at once; must not wait
	Clock   clock.Clock
	Log     *slog.Logger
}

// Recorder writes decisions to the store in batches, so that no request waits. Equal attempts of one sandbox within a
// batch become one decision with a count. Decisions that cannot be written are counted, and the count is written later.
// The nil Recorder records nothing.
type Recorder struct {
	o    RecorderOptions
	lost atomic.Int64

	mu      sync.Mutex
	pending []decision.Decision
	alike   map[decision.Decision]int // index in pending
	share   map[source]int            // of pending
	missing map[source]int64          // not recorded, and not reported yet
	due     bool                      // a write has been requested
	full    bool                      // and it must not wait

	writing sync.Mutex // guards the order of batches, and failing
	failing bool
}

// source is the origin of a decision.
type source struct{ execution, sandbox, client string }

func sourceOf(d decision.Decision) source { return source{d.Execution, d.Sandbox, d.Client} }

const (
	batchTime = 200 * time.Millisecond // how long a decision waits for more
	batchSize = 512                    // of one transaction; a full batch does not wait
	maxShare  = 2048                   // waiting decisions of one sandbox
)

// NewRecorder returns a Recorder. The caller must Flush it at the end.
func NewRecorder(o RecorderOptions) *Recorder {
	r := &Recorder{o: o, missing: map[source]int64{}}
	r.reset()
	return r
}

func (r *Recorder) reset() {
	r.pending, r.alike, r.share = nil, map[decision.Decision]int{}, map[source]int{}
	r.due, r.full = false, false
}

// Record accepts a decision. It never waits for the store.
func (r *Recorder) Record(d decision.Decision) {
	if r == nil {
		return
	}
	d.Count = max(d.Count, 1)
	if r.o.Observe != nil {
		r.o.Observe(d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(d)
	switch {
	case len(r.pending) >= batchSize && !r.full:
		r.full = true
		go r.Flush()
	case !r.due:
		r.due = true
		r.o.Clock.AfterFunc(batchTime, r.Flush)
	}
}

func (r *Recorder) add(d decision.Decision) {
	from, key := sourceOf(d), kind(d)
	if i, ok := r.alike[key]; ok {
		p := &r.pending[i]
		p.Count += d.Count
		p.Sent += d.Sent
		p.Received += d.Received
		p.Duration += d.Duration
		return
	}
	if r.share[from] >= maxShare {
		r.miss(from, d.Count)
		return
	}
	r.share[from]++
	r.alike[key] = len(r.pending)
	r.pending = append(r.pending, d)
}

// kind returns the part that equal attempts share.
func kind(d decision.Decision) decision.Decision {
	d.Time, d.Count, d.Sent, d.Received, d.Duration = time.Time{}, 0, 0, 0, 0
	return d
}

func (r *Recorder) miss(from source, n int64) {
	r.missing[from] += n
	r.lost.Add(n)
}

// Lost returns the number of decisions that could not be recorded.
func (r *Recorder) Lost() int64 {
	if r == nil {
		return 0
	}
	return r.lost.Load()
}

// Flush writes the accepted decisions. On return each is in the store or lost.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	for batch := r.take(); len(batch) > 0; {
		n := min(len(batch), batchSize)
		err := r.o.Store.For(cove.System("")).AppendDecisions(context.Background(), r.o.Keep, batch[:n]...)
		r.settle(batch[:n], err)
		batch = batch[n:]
	}
}

// take returns the pending decisions, and reports of lost ones.
func (r *Recorder) take() []decision.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	for from, n := range r.missing {
		batch = append(batch, decision.Decision{
			Time: r.o.Clock.Now(), Execution: from.execution, Sandbox: from.sandbox, Client: from.client,
			Verdict: decision.Lost, Reason: fmt.Sprintf("%d decisions were not recorded", n), Count: n,
		})
	}
	clear(r.missing)
	r.reset()
	return batch
}

// settle logs, once, that writing begins to fail, and that it works again.
func (r *Recorder) settle(batch []decision.Decision, err error) {
	if err == nil {
		if r.failing {
			r.o.Log.Info("decisions of the gateway are recorded again", "lost", r.Lost())
		}
		r.failing = false
		return
	}
	if !r.failing {
		r.o.Log.Error("decisions of the gateway are not recorded; they are counted until they can be", "error", err)
	}
	r.failing = true
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range batch {
		if r.missing[sourceOf(d)] += d.Count; d.Verdict != decision.Lost {
			r.lost.Add(d.Count)
		}
	}
}
