package execution_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// sleeps waits until it is killed, after some CPU time.
func sleeps(p *fake.Process) int {
	p.Account(func(s *engine.Stats) { s.CPUTime += 10 * time.Millisecond })
	<-p.Context.Done()
	return 0
}

// computes uses CPU time whenever it is looked at, until it is killed.
func computes(cpu time.Duration) fake.Program {
	return func(p *fake.Process) int {
		p.Account(func(s *engine.Stats) { s.CPUTime += cpu })
		<-p.Context.Done()
		return 0
	}
}

// TestWaitingMakesRoom: an execution that waits for something, or has computed for long, keeps no other one waiting,
// though one alone may compute; what is beyond max_concurrent waits all the same.
func TestWaitingMakesRoom(t *testing.T) {
	for name, program := range map[string]fake.Program{"sleeps": sleeps, "computes for long": computes(time.Second)} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, program, func(o *execution.Options) { o.MaxConcurrent, o.MaxComputing = 3, 1 })
			ctx, cancel := context.WithCancel(t.Context())
			var runs sync.WaitGroup
			for range 4 {
				runs.Go(func() { h.Execute(ctx, owner, python("x"), nil, nil) })
			}
			eventually(t, func() bool {
				l := h.Load()
				return l.Running == 3 && l.Computing == 0 && l.Waiting == 1
			})
			cancel()
			runs.Wait()
			eventually(t, func() bool { return h.Load().Running == 0 })
		})
	}
}

// TestJobsMakeRoom: a job waits for a model, and so computes from its beginning no more than it must.
func TestJobsMakeRoom(t *testing.T) {
	h := newHouse(t, say, func(o *execution.Options) { o.MaxConcurrent, o.MaxComputing = 2, 1 })
	begun, end := make(chan struct{}), make(chan struct{})
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer close(end)
	jobs.Go(func() {
		h.Do(t.Context(), owner, execution.Job{Language: "claude", Do: func(context.Context, cove.ExecutionID,
			process.Output) (execution.Result, error) {
			close(begun)
			<-end
			return execution.Result{}, nil
		}}, nil)
	})
	<-begun
	if _, err := h.Execute(t.Context(), owner, python("x"), nil, nil); err != nil {
		t.Error(err)
	}
}

// TestPatience: an execution waits for a place as long as it may run, or as the server has it wait, whichever is
// shorter, and one that would wait for longer is refused when it comes.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name             string
		timeout, maxWait time.Duration
		patience         time.Duration
	}{
		{"its timeout is shorter", 10 * time.Second, time.Minute, 10 * time.Second},
		{"the server's is", 10 * time.Second, 4 * time.Second, 4 * time.Second},
		{"the server has none", 10 * time.Second, 0, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			manual := clocktest.NewManual(time.Now())
			h := newHouse(t, untilKilled, func(o *execution.Options) {
				o.MaxConcurrent, o.MaxWait, o.Clock = 1, c.maxWait, manual
			})
			ctx, cancel := context.WithCancel(t.Context())
			var runs sync.WaitGroup
			defer runs.Wait()
			defer cancel()
			long := python("x")
			long.Limits.Timeout = time.Minute
			runs.Go(func() { h.Execute(ctx, owner, long, nil, nil) })
			eventually(t, func() bool { return h.Load().Running == 1 })

			r := python("x")
			r.Limits.Timeout = c.timeout
			waited := make(chan error)
			runs.Go(func() {
				_, err := h.Execute(t.Context(), owner, r, nil, nil)
				waited <- err
			})
			eventually(t, func() bool { return h.Load().Waiting == 1 })
			manual.Advance(c.patience - 1)
			select {
			case err := <-waited:
				t.Fatalf("too early: %v", err)
			default:
			}
			if l := h.Load(); l.Wait != c.patience-1 { // the line stands since the second came
				t.Errorf("a newcomer would wait %s", l.Wait)
			}
			manual.Advance(1)
			err := <-waited
			if cove.ErrorCode(err) != cove.Overloaded || !strings.Contains(err.Error(), c.patience.String()) ||
				cove.ErrorRetry(err) == 0 {
				t.Errorf("got %v, again in %s", err, cove.ErrorRetry(err))
			}

			runs.Go(func() { h.Execute(ctx, owner, long, nil, nil) })
			eventually(t, func() bool { return h.Load().Waiting == 1 })
			manual.Advance(c.patience - 1)
			r.Limits.Timeout = 2 * time.Second
			_, err = h.Execute(t.Context(), owner, r, nil, nil)
			if cove.ErrorCode(err) != cove.Overloaded || !strings.Contains(err.Error(), "1 executions wait already") {
				t.Errorf("one that would wait too long: %v", err)
			}
			if l := h.Load(); l.Refused["timed"] != 1 || l.Refused["late"] != 1 || l.Waits.Counts[0] != 1 {
				t.Errorf("%+v", l)
			}
		})
	}
}
