package driver

import (
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

// Sandboxed has an agent work in sandboxes of a server.
func Sandboxed(c *client.Client, config Config) Driver {
	return &sandboxed{c: c, config: config, tasks: newTasks()}
}

// errBrokenOff ends the taking part in a run whose messages nobody wants.
var errBrokenOff = errors.New("nobody listens any more")

// Run implements Driver.
func (s *sandboxed) Run(ctx context.Context, prompt string, o Options) iter.Seq2[api.Message, error] {
	return func(yield func(api.Message, error) bool) {
		ctx, end, err := s.begin(ctx)
		if err != nil {
			yield(api.Message{}, err)
			return
		}
		defer end()
		if err := check(prompt, o); err != nil {
			yield(api.Message{}, err)
			return
		}
		var id string
		run, err := s.c.StartRun(ctx, s.request(prompt, o), client.RunStream{
			Started: func(r api.Run) error {
				if id = r.ID; o.Started != nil {
					o.Started(r)
				}
				return nil
			},
			Message: func(m api.Message) error {
				if m.Usage != nil && m.Type == api.MessageUsage {
					s.count(*m.Usage)
				}
				if !yield(m, nil) {
					return errBrokenOff
				}
				return nil
			},
		})
		if errors.Is(err, errBrokenOff) {
			if id != "" { // the server notices that nobody follows; this is sooner
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

// Generate implements Driver.
func (s *sandboxed) Generate(ctx context.Context, prompt string, o Options) (Result, error) {
	return generate(ctx, s, prompt, o)
}

// request is a task as the server takes it.
func (s *sandboxed) request(prompt string, o Options) api.RunRequest {
	fresh := s.config.New
	fresh.Profile = s.config.Profile
	q := api.RunRequest{
		Agent: s.config.Agent, Prompt: prompt, Model: o.Model, Instructions: o.Instructions, MaxTurns: o.MaxTurns, Schema: o.Schema,
		Timeout: o.Timeout.Seconds(), Resume: o.Resume, Directory: o.Directory, Bind: o.Bind, New: &fresh,
	}
	if q.Model == "" {
		q.Model = s.config.Model
	}
	return q
}

// failure is why a run did not come to an end of its own.
func failure(r api.Run) error {
	switch r.Status {
	case api.RunError:
		if r.Error == nil {
			return cove.Errorf(cove.Internal, "the run %s went wrong", r.ID)
		}
		return &cove.Error{Code: cove.Code(r.Error.Code), Message: r.Error.Error, Hint: r.Error.Hint}
	case api.RunLimit:
		return cove.Errorf(cove.LimitReached, "a limit ended the run %s: %s", r.ID, r.LimitHit).WithHint("allow more, or ask for less")
	case api.RunInterrupted:
		return cove.Errorf(cove.Canceled, "somebody ended the run %s", r.ID)
	}
	return nil
}

// tasks are those of a driver that are under way.
type tasks struct {
	ending context.Context
	end    context.CancelFunc

	mu      sync.Mutex
	closed  bool           // guarded by mu
	used    api.AgentUsage // guarded by mu
	running sync.WaitGroup // added to under mu while not closed
}

func newTasks() tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return tasks{ending: ctx, end: cancel}
}

// begin begins one; done must be called.
func (t *tasks) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, cove.Errorf(cove.Unavailable, "the driver is closed")
	}
	t.running.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ending, cancel)
	return ctx, func() { stop(); cancel(); t.running.Done() }, nil
}

func (t *tasks) count(u api.AgentUsage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = t.used.Plus(u)
}

// Usage implements Driver.
func (t *tasks) Usage() api.AgentUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// Close implements Driver.
func (t *tasks) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.running.Wait()
	return nil
}
