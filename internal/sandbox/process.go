package sandbox

import (
	"context"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
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

// detachedLabel is what the guest keeps of a command that is to go on when the
// server has gone.
const detachedLabel = "detached"

// command is one that runs.
type command struct {
	who     cove.Principal // who asked for it
	sandbox cove.SandboxID
	process *guest.RemoteProcess
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
	p, err := in.Guest.Guest().Start(ctx, spec)
	if err != nil {
		err = startFailure(spec, err)
	}
	m.auditProcess(ctx, who, "exec", in.Sandbox, q.Args, err)
	if err != nil {
		return r, err
	}
	c := &command{who: who, sandbox: in.ID, process: p}
	m.mu.Lock()
	m.commands[r.ID] = c
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.commands, r.ID)
	}()
	started(r.ID)
	exit, limit, err := m.attend(ctx, c, q, out)
	if err != nil {
		return r, err
	}
	r.ExitCode, r.Limit, r.Duration = exit.Code, limit, m.o.Clock.Since(began)
	return r, nil
}

// attend moves a command's streams until it ends, its time is up, or its caller
// has gone.
func (m *Manager) attend(ctx context.Context, c *command, q CommandRequest, out Output) (exit guest.Exit, limit cove.LimitKind, err error) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	p := c.process
	to := &outlet{to: out}
	defer to.close()
	var streams sync.WaitGroup
	streams.Go(func() { new(collector).copy(p.Stdout(), to.Stdout, gone) })
	streams.Go(func() { new(collector).copy(p.Stderr(), to.Stderr, gone) })
	m.serving.Go(streams.Wait) // what is detached is read on
	if q.Stdin != nil {
		go func() { // ends with its reader or the process, whichever is first
			io.Copy(p.Stdin(), q.Stdin)
			p.Stdin().Close()
		}()
	}
	var timeUp <-chan time.Time
	if q.Timeout > 0 {
		timer := m.o.Clock.NewTimer(q.Timeout)
		defer timer.Stop()
		timeUp = timer.C
	}
	select {
	case <-p.Exited():
	case <-timeUp:
		limit = cove.LimitTimeout
		err = c.kill(m)
	case <-m.ending.Done():
		return exit, "", cove.Errorf(cove.Unavailable, "the server shuts down")
	case <-ctx.Done():
		left := cove.Errorf(cove.Canceled, "the caller went away: %w", ctx.Err())
		if q.Detach {
			return exit, "", left
		}
		c.kill(m)
		err = left
	}
	if err != nil {
		return exit, limit, err
	}
	streams.Wait()
	if exit, err = p.Wait(context.Background()); err != nil {
		err = cove.Errorf(cove.Conflict, "the sandbox does not run any more: %w", err).WithHint("start it with \"cove start\"")
	}
	return exit, limit, err
}

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
		return errEnded
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
func (c *command) kill(m *Manager) error {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	if err := c.process.Signal(ctx, int(syscall.SIGKILL)); err != nil {
		return err
	}
	select {
	case <-c.process.Exited():
		return nil
	case <-m.o.Clock.After(stopGrace):
		return cove.Errorf(cove.Unavailable, "the command was killed and does not end")
	}
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
	return c.process.Signal(ctx, int(signal))
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
