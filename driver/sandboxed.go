package driver

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// sandboxed is a driver of agents in a server's sandboxes.
type sandboxed struct {
	c      *client.Client
	config Config
	tasks
}

// Sandboxed returns a driver that runs an agent in sandboxes of a server.
func Sandboxed(c *client.Client, config Config) Driver {
	return &sandboxed{c: c, config: config, tasks: newTasks()}
}

// errBrokenOff ends the following of a run whose caller has stopped listening.
var errBrokenOff = errors.New("the caller has stopped listening")

// Run implements Driver.
func (s *sandboxed) Run(ctx context.Context, prompt string, o Options) iter.Seq2[api.Message, error] {
	return func(yield func(api.Message, error) bool) {
		ctx, task, err := s.begin(ctx)
		if err != nil {
			yield(api.Message{}, err)
			return
		}
		defer task.end()
		if err := check(prompt, o); err != nil {
			yield(api.Message{}, err)
			return
		}
		var id string
		run, err := s.c.StartRun(ctx, s.request(prompt, o), client.RunStream{
			Started: func(r api.Run) error {
				id = r.ID
				if o.Started != nil {
					o.Started(r)
				}
				go s.interrupt(ctx, id, o.Interrupt)
				return nil
			},
			Log: func(b []byte) error {
				if o.Log != nil {
					o.Log(b)
				}
				return nil
			},
			Message: func(m api.Message) error {
				task.recordUsage(m)
				if !yield(m, nil) {
					return errBrokenOff
				}
				return nil
			},
		})
		if errors.Is(err, errBrokenOff) {
			if id != "" { // the server notices the end of following, but later
				_ = s.c.InterruptRun(context.WithoutCancel(ctx), id, true)
			}
			return
		}
		if err == nil {
			err = failure(run)
		}
		if err != nil {
			yield(api.Message{}, err)
		}
	}
}

// interrupt interrupts a run when the channel closes, while the run lasts.
func (s *sandboxed) interrupt(ctx context.Context, id string, when <-chan struct{}) {
	select {
	case <-when:
		_ = s.c.InterruptRun(ctx, id, false) // it may have ended already
	case <-ctx.Done():
	}
}

// Generate implements Driver.
func (s *sandboxed) Generate(ctx context.Context, prompt string, o Options) (Result, error) {
	return generate(ctx, s, prompt, o)
}

// request returns a task in the server's form. A continued conversation stays in its existing sandbox.
func (s *sandboxed) request(prompt string, o Options) api.RunRequest {
	q := api.RunRequest{
		Agent: s.config.Agent, Prompt: prompt, Model: cmp.Or(o.Model, s.config.Model), Instructions: o.Instructions,
		MaxTurns: o.MaxTurns, Schema: o.Schema, AgentOptions: o.AgentOptions,
		Timeout: api.Seconds(o.Timeout.Seconds()), Resume: o.Resume,
	}
	if o.Resume == "" {
		fresh := s.config.New
		fresh.Profile = s.config.Profile
		q.Directory, q.Bind, q.New = o.Directory, o.Bind, &fresh
	}
	return q
}

// failure returns the error of a run that did not end normally.
func failure(r api.Run) error {
	switch {
	case r.Status == api.RunLimit:
		return cove.Errorf(cove.LimitReached, "a limit ended the run %s: %s", r.ID,
			r.LimitHit).WithHint("allow more, or ask for less")
	case r.Status == api.RunInterrupted:
		return cove.Errorf(cove.Canceled, "the run %s was ended", r.ID)
	case r.Error != nil: // also a failure of its program without a result
		return &cove.Error{Code: cove.Code(r.Error.Code), Message: r.Error.Error, Hint: r.Error.Hint}
	case r.Status == api.RunError:
		return cove.Errorf(cove.Internal, "the run %s went wrong", r.ID)
	}
	return nil
}

// tasks holds a driver's running tasks, and the usage of all.
type tasks struct {
	mu      sync.Mutex
	closed  bool           // guarded by mu
	past    api.AgentUsage // usage of ended tasks; guarded by mu
	now     map[*task]bool // guarded by mu
	running sync.WaitGroup // added to under mu while not closed
}

// task is a running task.
type task struct {
	of   *tasks
	stop context.CancelFunc
	used api.AgentUsage // so far; guarded by of.mu
}

func newTasks() tasks {
	return tasks{now: map[*task]bool{}}
}

// begin registers a task; its end must be called.
func (t *tasks) begin(ctx context.Context) (context.Context, *task, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, cove.Errorf(cove.Unavailable, "the driver is closed")
	}
	t.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	k := &task{of: t, stop: cancel}
	t.now[k] = true
	return ctx, k, nil
}

// recordUsage records the usage in a message, which is the task's total.
func (k *task) recordUsage(m api.Message) {
	if m.Type != api.MessageUsage || m.Usage == nil {
		return
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.used = *m.Usage
}

func (k *task) end() {
	k.stop()
	k.of.mu.Lock()
	k.of.past = k.of.past.Plus(k.used)
	delete(k.of.now, k)
	k.of.mu.Unlock()
	k.of.running.Done()
}

// Usage implements Driver.
func (t *tasks) Usage() api.AgentUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := t.past
	for k := range t.now {
		used = used.Plus(k.used)
	}
	return used
}

// Close implements Driver.
func (t *tasks) Close() error {
	t.mu.Lock()
	t.closed = true
	for k := range t.now {
		k.stop()
	}
	t.mu.Unlock()
	t.running.Wait()
	return nil
}
