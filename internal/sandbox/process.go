package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// Process is a program in a long-lived sandbox. Its holder reads both streams to their end, reports how much of the
// output is stored safely, waits for it, and has it forgotten once its end is stored. When this server ends before
// that, the next server receives the program (Successor) with the output that was not safe, and with its end.
type Process struct {
	Sandbox cove.SandboxID

	in       Inside
	program  *process.Process
	oomKills int64        // in the sandbox before it began
	whyLost  func() error // the reason for the end of the connection to the guest

	stdout, stderr io.Reader
}

// newProcess returns a program with its streams, from which the values of the gateway's credentials are blanked.
func newProcess(in Inside, program *process.Process, before engine.Stats, whyLost func() error) *Process {
	program.Retain()
	p := &Process{Sandbox: in.ID, in: in, program: program, oomKills: before.OOMKills, whyLost: whyLost,
		stdout: program.Stdout(), stderr: program.Stderr()}
	if in.route != nil {
		p.stdout, p.stderr = in.route.Concealed(p.stdout), in.route.Concealed(p.stderr)
	}
	return p
}

// processLabel is the label of a Process in the guest.
type processLabel struct {
	Process string `json:"process"`
}

// processName returns the name in a label; empty when the label is not a Process's.
func processName(label []byte) string {
	var l processLabel
	if json.Unmarshal(label, &l) != nil {
		return ""
	}
	return l.Process
}

// Stdout returns the program's output, without credentials. The guest keeps it until Safe.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Stderr returns the program's error output, without credentials.
func (p *Process) Stderr() io.Reader { return p.stderr }

// Safe releases the standard output before an offset.
func (p *Process) Safe(offset uint64) error { return p.program.Release(offset) }

// Forget tells the guest that the program's end is recorded. Until then the next server receives the program, with its
// exit and the output that was not safe, although it has ended.
func (p *Process) Forget() error { return p.program.Forget() }

// Exited returns a channel that is closed when the program has ended, or this server has let go of it.
func (p *Process) Exited() <-chan struct{} { return p.program.Exited() }

// Signal sends a signal to the program's process group.
func (p *Process) Signal(ctx context.Context, s syscall.Signal) error {
	return p.program.Signal(ctx, s)
}

// Kill kills the program's process group, and everything else in the sandbox when the guest does not answer.
func (p *Process) Kill() error {
	err := p.program.Kill()
	if errors.Is(err, context.DeadlineExceeded) {
		return p.in.Guest.Kill()
	}
	return err
}

// Ended describes how a Process ended.
type Ended struct {
	ExitCode int            // 128+N for signal N
	Limit    cove.LimitKind // that may have ended it
	// Usage and Models are those of its sandbox since that was started, other programs in it included.
	Usage  cove.Usage
	Models []model.ProviderUsage
}

// Wait waits for the program's end; both streams must be read. Errors: Shutdown when this server lets go of it and
// it goes on, Conflict when the sandbox does not run any more; Limit may then say why.
func (p *Process) Wait() (e Ended, err error) {
	o := p.program.Wait()
	if o.Lost != nil {
		// The end of the connection shows here before its reason is known.
		err = p.whyLost()
	}
	if cove.ErrorCode(err) == cove.Shutdown {
		return Ended{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.Grace)
	defer cancel()
	stats, serr := p.in.Guest.Stats(ctx)
	if serr != nil {
		stats = engine.Stats{}
	}
	stats.OOMKills = max(0, stats.OOMKills-p.oomKills)
	e = Ended{ExitCode: o.Code, Limit: o.Limit(stats), Usage: cove.Usage{
		CPUTime: stats.CPUTime, MemoryPeak: stats.MemoryPeak, PIDsPeak: stats.PIDsPeak,
		BytesWritten: o.Stats.BytesWritten, DiskUsed: o.Stats.DiskUsed,
	}}
	if e.Limit == "" && o.Code != 0 && p.in.diskIsFull() {
		e.Limit = cove.LimitDisk
	}
	if p.in.route != nil {
		e.Models = p.in.route.Models()
	}
	return e, err
}

// Providers tell which providers of models refuse the credentials of the program's sandbox, or are not reached; nil
// without a network.
func (p *Process) Providers() egress.Providers {
	if p.in.route == nil {
		return nil
	}
	return p.in.route.Providers()
}

// Holds returns the requests of the program's sandbox that wait for an answer, the oldest first, and a channel that is
// closed when they change; nil without a network.
func (p *Process) Holds() ([]approval.Hold, <-chan struct{}) {
	if p.in.route == nil {
		return nil, nil
	}
	return p.in.route.Holds()
}

// LeftProcess is a process of an earlier server, to be taken up or ended. It stalls when its output is not read.
type LeftProcess struct {
	Sandbox  cove.SandboxID
	Name     string
	From, To uint64 // what is there of its standard output: offsets from its beginning

	takeUp func(ctx context.Context, from uint64, input *string) (*Process, error)
	end    func(context.Context) error
}

// TakeUp continues a process, from an available offset of its standard output. Unread standard error comes first. input
// is all of the process's input, of which the rest is sent; nil sends nothing.
func (l LeftProcess) TakeUp(ctx context.Context, from uint64, input *string) (*Process, error) {
	if from < l.From || from > l.To {
		return nil, cove.Errorf(cove.Corrupt, "what a program has written up to %d is not there any more", l.From)
	}
	return l.takeUp(ctx, from, input)
}

// End kills a process that is not adopted. Its output is dropped.
func (l LeftProcess) End(ctx context.Context) error { return l.end(ctx) }

// checkCommand refuses a malformed command.
func checkCommand(args []string, env map[string]string) error {
	if err := runtime.CheckArgs(args); err != nil {
		return err
	}
	return runtime.CheckEnv(env)
}

// escaped returns text of a sandbox with everything that is not printable as %q has it.
func escaped(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// startFailure turns a guest's failure to start a program into an error for the user.
func startFailure(spec guest.ProcessSpec, err error) error {
	var failure *guest.Failure
	switch {
	case errors.Is(err, guest.ErrKeeperStopped):
		return cove.Errorf(cove.Unavailable, "cannot start a program: %w", err).
			WithHint("stop the sandbox, and start it again")
	case errors.Is(err, guest.ErrKeeperEnds):
		return cove.Errorf(cove.Overloaded, "cannot start a program: %w", err).
			WithHint("end programs inside, or make one with a higher limit (--pids)")
	case !errors.As(err, &failure):
		return err
	}
	failure = &guest.Failure{Kind: failure.Kind, Message: escaped(failure.Message)}
	program := ""
	if len(spec.Args) > 0 {
		program = spec.Args[0]
	}
	if foreign := process.Foreign(escaped(program), err); foreign != nil {
		return foreign
	}
	switch failure.Kind {
	case guest.FailNotFound:
		return cove.Errorf(cove.RuntimeMissing, "cannot start %.200q in %.200q: %w", program, spec.Dir, failure).
			WithHint("it, or the directory, is not in the sandbox")
	case guest.FailPermission, guest.FailInvalid:
		return cove.Errorf(cove.InvalidArgument, "cannot start %.200q in %.200q: %w", program, spec.Dir, failure)
	case guest.FailNoProcess, guest.FailState:
		return cove.Errorf(cove.Overloaded, "the sandbox has as many processes as it may have").
			WithHint("end some, or make one with a higher limit (--pids)")
	}
	if failure.Kind == guest.FailNoSpace && spec.TTY {
		return cove.Errorf(cove.Overloaded, "the sandbox has as many terminals as it may have (%d)", rootfs.Terminals).
			WithHint("end programs inside that have terminals")
	}
	return cove.Errorf(cove.Internal, "cannot start %.200q: %w", program, failure)
}
