package execution

import (
	"context"
	"errors"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

const (
	trialInterval = 10 * time.Second // an engine is tried at most so often
	trialPatience = 2 * time.Second  // a caller waits so long for a trial
)

// Health maps each engine to "ok", engine.Unused, or the reason why it cannot be used. Each engine in use is tried, at
// most once in trialInterval.
func (x *Executions) Health(ctx context.Context) map[string]string {
	health := x.o.Engines.Health()
	for _, eng := range x.o.Engines.Opened() {
		t := x.trials.of(x, eng)
		err := clock.Await(ctx, t.done, x.o.Clock.After(trialPatience-min(trialPatience, x.o.Clock.Since(t.began))))
		switch {
		case err == nil && t.err != nil:
			health[eng.Name()] = t.err.Error()
		case err == nil, x.trials.workedSince(eng, t.began):
		case errors.Is(err, clock.ErrLate):
			health[eng.Name()] = "it does not answer"
		default:
			health[eng.Name()] = "it has not answered yet"
		}
	}
	return health
}

// of returns the trial of an engine that counts now: the last one, or a new one where that is too old.
func (ts *trials) of(x *Executions, eng engine.Engine) *trial {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.last[eng.Name()]
	if t != nil {
		select {
		case <-t.done:
			if x.o.Clock.Since(t.began) < trialInterval {
				return t
			}
		default:
			return t
		}
	}
	t = &trial{began: x.o.Clock.Monotonic(), done: make(chan struct{})}
	if err := x.call(); err != nil {
		t.err = err
		close(t.done)
		return t
	}
	ts.last[eng.Name()] = t
	go func() {
		defer x.calls.Done()
		t.err = try(eng)
		close(t.done)
	}()
	return t
}

// trialShape is the sandbox of a trial.
var trialShape = cove.Shape{User: cove.CodeUser, Limits: cove.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 16, Disk: 1 << 20,
	Inodes: 64, OpenFiles: 64}}

// try uses an engine: it makes a sandbox and tears it down. Of an engine with a daemon of its own it asks that.
func try(eng engine.Engine) error {
	if adopter, ok := eng.(engine.Adopter); ok && eng.Capabilities().OwnImages {
		ctx, cancel := context.WithTimeout(context.Background(), trialInterval)
		defer cancel()
		_, err := adopter.Left(ctx)
		return err
	}
	sb, err := provision.New(context.Background(), eng, provision.Plan{Shape: trialShape})
	if err != nil {
		return err
	}
	return sb.TearDown()
}
