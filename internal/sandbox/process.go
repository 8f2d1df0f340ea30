package sandbox

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
)

// CommandRequest is a command to run in a sandbox that runs.
type CommandRequest struct {
	Args    []string
	Env     map[string]string
	Dir     string // relative to where processes begin, or absolute
	Timeout time.Duration
	Stdin   io.Reader // nil is empty input
	Detach  bool      // it goes on when the caller leaves
}

// CommandResult is how a command ended.
type CommandResult struct {
	ID       cove.ExecutionID
	ExitCode int // 128+N for signal N
	Limit    cove.LimitKind
	Duration time.Duration
}

// command is one that runs.
type command struct {
	who     cove.Principal // who asked for it
	sandbox cove.SandboxID
	process *process.Process
}

// Command runs a command in a sandbox that runs. started is told its id before
// any output; out receives the output as it comes, and what is slow there slows
// the command. A command that fails is a result. When ctx ends, it is killed,
// with its process group, unless it is detached. Errors: NotFound, Conflict when
// the sandbox does not run, InvalidArgument, RuntimeMissing, Overloaded.
func (m *Manager) Command(ctx context.Context, who cove.Principal, ref string, q CommandRequest, started func(cove.ExecutionID), out Output) (CommandResult, error) {
	if err := m.call(); err != nil {
		return CommandResult{}, err
	}
	defer m.calls.Done()
	if len(q.Args) == 0 || q.Args[0] == "" {
		return CommandResult{}, cove.Errorf(cove.InvalidArgument, "there is no command").WithHint("give a program and its arguments")
	}
	if err := checkCommand(q.Args, q.Env); err != nil {
		return CommandResult{}, err
	}
	in, err := m.EnterSandbox(ctx, who, ref)
	if err != nil {
		return CommandResult{}, err
	}
	spec := guest.ProcessSpec{Args: q.Args, Env: in.environment(q.Env), Dir: in.place(q.Dir), Stdin: q.Stdin != nil}
	if q.Detach {
		spec.Label = []byte(detachedLabel)
	}
	r := CommandResult{ID: cove.NewExecutionID()}
	began := m.o.Clock.Monotonic()
	p, err := process.Start(ctx, in.Guest, m.o.Clock, spec)
	if err != nil {
		err = startFailure(spec, err)
	}
	m.auditProcess(ctx, who, "exec", in.Sandbox, q.Args, err)
	if err != nil {
		return r, err
	}
	m.mu.Lock()
	m.commands[r.ID] = &command{who: who, sandbox: in.ID, process: p}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.commands, r.ID)
	}()
	started(r.ID)
	if r.ExitCode, r.Limit, err = m.attend(ctx, p, q, out); err != nil {
		return r, err
	}
	r.Duration = m.o.Clock.Since(began)
	return r, nil
}

// errShutdown is why a server lets go of commands.
var errShutdown = cove.Errorf(cove.Unavailable, "the server shuts down")

// attend moves a command's streams until it ends, its time is up, its caller has
// gone, or this server goes, which leaves it running.
func (m *Manager) attend(ctx context.Context, p *process.Process, q CommandRequest, out Output) (code int, limit cove.LimitKind, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ending, func() { cancel(errShutdown) })()
	to := &outlet{to: out}
	defer to.close()
	p.Copy(sink(to.Stdout), sink(to.Stderr), func() { cancel(context.Canceled) })
	m.serving.Go(p.Copied) // what is detached is read on
	p.Feed(q.Stdin)
	switch why := p.Await(ctx, q.Timeout); {
	case why == nil:
	case errors.Is(why, process.ErrTimeout):
		if err := kill(p); err != nil {
			return 0, "", err
		}
		limit = cove.LimitTimeout
	case errors.Is(why, errShutdown):
		return 0, "", errShutdown
	default:
		if !q.Detach {
			kill(p)
		}
		return 0, "", cove.Errorf(cove.Canceled, "the caller went away: %w", why)
	}
	o := p.Wait()
	if o.Lost != nil {
		return 0, "", cove.Errorf(cove.Conflict, "the sandbox does not run any more: %w", o.Lost).WithHint("start it with \"cove start\"")
	}
	return o.Code, limit, nil
}

// errGone: nobody takes the output any more.
var errGone = errors.New("the receiver of the output has gone")

// outlet passes output on while its receiver is there.
type outlet struct {
	mu sync.Mutex
	to Output // nil when it has gone
}

func (o *outlet) Stdout(p []byte) error { return o.pass(Output.Stdout, p) }
func (o *outlet) Stderr(p []byte) error { return o.pass(Output.Stderr, p) }

func (o *outlet) pass(write func(Output, []byte) error, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return errGone
	}
	return write(o.to, p)
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = nil
}

// kill kills a command's process group and waits for its end, though not for
// ever: what hangs in the kernel cannot be killed.
func kill(p *process.Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	if p.Await(context.Background(), stopGrace) != nil {
		return cove.Errorf(cove.Unavailable, "the command was killed and does not end")
	}
	return nil
}

// SignalCommand sends a signal to a command that the caller has started, and to
// its process group. Errors: NotFound.
func (m *Manager) SignalCommand(ctx context.Context, who cove.Principal, ref string, id cove.ExecutionID, signal syscall.Signal) error {
	record, err := m.findRecord(ctx, who, ref)
	if err != nil {
		return err
	}
	m.mu.Lock()
	c := m.commands[id]
	m.mu.Unlock()
	if c == nil || c.sandbox != record.ID || !who.Sees(c.who) {
		return cove.Errorf(cove.NotFound, "no command %s runs in the sandbox %s", id, record.Name)
	}
	return c.process.Signal(ctx, signal)
}

// whyLeft is why this process lets go of a sandbox.
func (m *Manager) whyLeft() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return cove.Errorf(cove.Unavailable, "the server shuts down; the program goes on")
	}
	return cove.Errorf(cove.Conflict, "the sandbox does not run any more").WithHint("start it with \"cove start\"")
}
