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
	"github.com/cove-sandbox/cove/internal/store"
)

// Processes runs programs in the sandboxes that this process holds: commands, terminals, and programs that outlive the
// server. It connects to their ports, too. Its methods may be called concurrently.
type Processes struct {
	*supervisor
	commandsMu sync.Mutex
	commands   map[cove.ExecutionID]*command
	ports      ports
}

// NewProcesses makes the Processes of Sandboxes.
func NewProcesses(of *Sandboxes) *Processes {
	return &Processes{supervisor: of.supervisor, commands: map[cove.ExecutionID]*command{},
		ports: ports{open: map[portUse]int{}}}
}

// CommandRequest describes a command for a running sandbox.
type CommandRequest struct {
	Args    []string
	Env     map[string]string
	Dir     string // relative to where processes begin, or absolute
	Timeout time.Duration
	Stdin   io.Reader // nil is empty input
	Detach  bool      // it goes on when the caller leaves
	Git     bool      // it needs git, and runs in a companion of a sandbox whose image has none
}

// CommandResult describes how a command ended.
type CommandResult struct {
	ID       cove.ExecutionID
	ExitCode int // 128+N for signal N
	// Limit is LimitTimeout, LimitOOM where SIGKILL has ended it and the kernel has killed for memory, or LimitDisk where
	// it has failed and the disk of the workspace and the home is full.
	Limit    cove.LimitKind
	Duration time.Duration
}

// command is a running command, or one that is about to run.
type command struct {
	id       cove.ExecutionID
	who      cove.Principal // who asked for it
	release  func()         // gives its place back
	detached bool
	sandbox  cove.SandboxID
	process  *process.Process // nil before it has started
}

// Command runs a command in a running sandbox. started receives its id before any output; out receives the output as it
// comes, and a slow out slows the command. A failing command is a result. At the end of ctx the command is killed with
// its process group, unless it is detached. Errors: NotFound, Conflict when the sandbox does not run, InvalidArgument,
// RuntimeMissing, Overloaded.
func (ps *Processes) Command(ctx context.Context, who cove.Principal, ref string, q CommandRequest,
	started func(cove.ExecutionID), out process.Output) (CommandResult, error) {
	if err := ps.call(); err != nil {
		return CommandResult{}, err
	}
	defer ps.calls.Done()
	if len(q.Args) == 0 || q.Args[0] == "" {
		return CommandResult{}, cove.Errorf(cove.InvalidArgument, "there is no command").
			WithHint("give a program and its arguments")
	}
	if err := checkCommand(q.Args, q.Env); err != nil {
		return CommandResult{}, err
	}
	in, err := ps.Enter(ctx, who, ref)
	if err != nil {
		return CommandResult{}, err
	}
	release, err := ps.o.Places.Hold(ctx, who, false)
	if err != nil {
		return CommandResult{}, err
	}
	c := &command{id: cove.NewExecutionID(), who: who, release: release, detached: q.Detach}
	defer ps.leave(c)
	defer in.cpu.count(context.WithoutCancel(ctx), in.Guest)
	if q.Git && in.Spec.GitBeside {
		if q.Detach {
			return CommandResult{}, cove.Errorf(cove.InvalidArgument, "a command with git is not detached").
				WithHint("leave detach or git out")
		}
		beside, done, err := ps.aside(ctx, who, in)
		if err != nil {
			return CommandResult{}, err
		}
		defer done()
		in = beside
	}
	spec := guest.ProcessSpec{Args: q.Args, Env: in.environment(q.Env), Dir: in.place(q.Dir), Stdin: q.Stdin != nil}
	if q.Detach {
		spec.Label = []byte(detachedLabel)
	}
	r := CommandResult{ID: c.id}
	killsBefore, unknown := oomKills(ctx, in)
	began := ps.o.Clock.Monotonic()
	if err := ps.noteProcess(ctx, who, "exec", in.Sandbox, q.Args); err != nil {
		return r, err
	}
	p, err := process.Start(ctx, in.Guest, ps.o.Clock, spec)
	if err != nil {
		err = startFailure(spec, err)
		ps.auditProcess(ctx, who, "exec", in.Sandbox, q.Args, err)
		return r, err
	}
	c.sandbox, c.process = in.ID, p
	ps.commandsMu.Lock()
	ps.commands[c.id] = c
	ps.commandsMu.Unlock()
	started(c.id)
	if r.ExitCode, r.Limit, err = ps.attend(ctx, p, q, out); err != nil {
		return r, err
	}
	r.Duration = ps.o.Clock.Since(began)
	if r.Limit == "" && r.ExitCode == 128+int(syscall.SIGKILL) && unknown == nil {
		if kills, err := oomKills(ctx, in); err == nil && kills > killsBefore {
			r.Limit = cove.LimitOOM
		}
	}
	if r.Limit == "" && r.ExitCode != 0 && in.diskIsFull() {
		r.Limit = cove.LimitDisk
	}
	return r, nil
}

// leave forgets a command that its caller leaves, and gives its place back. A detached one that goes on keeps both
// until it ends.
func (ps *Processes) leave(c *command) {
	if !c.detached || c.process == nil || c.process.Ended() {
		ps.forget(c)
		return
	}
	ps.serving.Go(func() {
		<-c.process.Exited()
		ps.forget(c)
	})
}

func (ps *Processes) forget(c *command) {
	ps.commandsMu.Lock()
	delete(ps.commands, c.id)
	ps.commandsMu.Unlock()
	c.release()
}

// oomKills returns how many processes of a sandbox the kernel has killed for memory. The kernel counts a kill before it
// sends the signal.
func oomKills(ctx context.Context, in Inside) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, process.Grace)
	defer cancel()
	stats, err := in.Guest.Stats(ctx)
	return stats.OOMKills, err
}

// errShutdown ends the attendance of a detached command, and errEnded another command, when the server shuts down.
var (
	errShutdown = cove.Errorf(cove.Shutdown, "the server shuts down; the command goes on")
	errEnded    = cove.Errorf(cove.Shutdown, "the server was told to stop while the command ran, and has ended it").
			WithHint("ask the next server for it again")
)

// attend moves a command's streams until the command ends, its time is up, its caller leaves, or the server shuts down.
// A detached command goes on without its caller and without the server.
func (ps *Processes) attend(ctx context.Context, p *process.Process, q CommandRequest, out process.Output) (code int,
	limit cove.LimitKind, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer ps.atEnd(func() { cancel(errShutdown) })()
	to := &outlet{to: out}
	defer to.close()
	p.Copy(process.Sink(to.Stdout), process.Sink(to.Stderr), func() { cancel(context.Canceled) })
	ps.serving.Go(p.Copied) // what is detached is read on
	p.Feed(q.Stdin)
	switch why := p.Await(ctx, q.Timeout); {
	case why == nil:
	case errors.Is(why, errShutdown) && p.Ended(): // it has come to its end all the same
	case errors.Is(why, process.ErrTimeout):
		if err := kill(p); err != nil {
			return 0, "", err
		}
		limit = cove.LimitTimeout
	case errors.Is(why, errShutdown) && !q.Detach:
		if err := kill(p); err != nil {
			ps.o.Log.Warn("a command cannot be ended", "error", err) // the next server ends it
		}
		return 0, "", errEnded
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
		return 0, "", cove.Errorf(cove.Conflict, "the sandbox does not run any more: %w", o.Lost).
			WithHint("start it with \"cove start\"")
	}
	return o.Code, limit, nil
}

// errGone reports output without a receiver.
var errGone = errors.New("the receiver of the output has gone")

// outlet passes output on while its receiver is there.
type outlet struct {
	mu sync.Mutex
	to process.Output // nil when it has gone
}

func (o *outlet) Stdout(p []byte) error { return o.pass(process.Output.Stdout, p) }

func (o *outlet) Stderr(p []byte) error { return o.pass(process.Output.Stderr, p) }

func (o *outlet) pass(write func(process.Output, []byte) error, p []byte) error {
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

// kill kills a command's process group and waits for its end, for a bounded time: a process that hangs in the kernel
// cannot be killed.
func kill(p *process.Process) error {
	if err := p.Kill(); err != nil {
		return err
	}
	if p.Await(context.Background(), stopGrace) != nil {
		return cove.Errorf(cove.Unavailable, "the command was killed and does not end")
	}
	return nil
}

// SignalCommand sends a signal to a command of the caller's, and to its process group. Errors: NotFound.
func (ps *Processes) SignalCommand(ctx context.Context, who cove.Principal, ref string, id cove.ExecutionID,
	signal syscall.Signal) error {
	record, err := ps.find(ctx, who, ref)
	if err != nil {
		return err
	}
	ps.commandsMu.Lock()
	c := ps.commands[id]
	ps.commandsMu.Unlock()
	if c == nil || c.sandbox != record.ID || !who.Sees(c.who) {
		return cove.Errorf(cove.NotFound, "no command %s runs in the sandbox %s", id, record.Name)
	}
	return c.process.Signal(ctx, signal)
}

// noteProcess records that a process is about to be started in a sandbox. Without the record it must not start.
func (ps *Processes) noteProcess(ctx context.Context, who cove.Principal, action string, of store.Sandbox,
	args []string) error {
	return ps.Note(ctx, who, processRecord(action, of, args, nil))
}

// auditProcess records that a process in a sandbox was ended, or could not be started.
func (ps *Processes) auditProcess(ctx context.Context, who cove.Principal, action string, of store.Sandbox,
	args []string, err error) {
	ps.Audit(ctx, who, processRecord(action, of, args, err))
}

// processRecord is the record of a process in a sandbox. Arguments stay out of it, since they may hold secrets.
func processRecord(action string, of store.Sandbox, args []string, err error) store.Record {
	detail := of.Name
	if len(args) > 0 {
		detail += ": " + args[0]
	}
	return auditRecord(action, of.ID, detail, err)
}
