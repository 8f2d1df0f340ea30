package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
)

// ProcessRequest describes a program that outlives this server.
type ProcessRequest struct {
	Name  string // by which the next server knows it; at most 64 bytes
	Args  []string
	Env   map[string]string
	Dir   string // relative to where processes begin, or absolute
	Stdin string // all of its input
}

// Process is a program in a long-lived sandbox. Its holder reads both streams to their end, reports how much of the
// output is stored safely, and waits for it. When this server ends, the program runs on, and the next server receives
// it (Successor) with the output that was not safe.
type Process struct {
	Sandbox cove.SandboxID

	v        *supervisor
	in       Inside
	program  *process.Process
	oomKills int64 // in the sandbox before it began

	stdout, stderr io.Reader
}

// newProcess returns a program with its streams, from which the values of the gateway's credentials are blanked.
func (v *supervisor) newProcess(in Inside, program *process.Process, before engine.Stats) *Process {
	program.Retain()
	p := &Process{Sandbox: in.ID, v: v, in: in, program: program, oomKills: before.OOMKills, stdout: program.Stdout(),
		stderr: program.Stderr()}
	if in.way != nil {
		p.stdout, p.stderr = in.way.Concealed(p.stdout), in.way.Concealed(p.stderr)
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

// Start starts a program in a running sandbox. Errors: NotFound, Conflict when the sandbox does not run,
// InvalidArgument, RuntimeMissing, Overloaded.
func (ps *Processes) Start(ctx context.Context, who cove.Principal, ref string, q ProcessRequest) (*Process, error) {
	if err := checkCommand(q.Args, q.Env); err != nil {
		return nil, err
	}
	in, err := ps.Enter(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	label, err := json.Marshal(processLabel{q.Name})
	if err != nil {
		return nil, err
	}
	spec := guest.ProcessSpec{Args: q.Args, Env: in.environment(q.Env), Dir: in.place(q.Dir), Stdin: true, Label: label}
	stats, err := in.Guest.Stats(ctx)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(ctx, in.Guest, ps.o.Clock, spec)
	if err != nil {
		err = startFailure(spec, err)
	}
	ps.auditProcess(ctx, who, "exec", in.Sandbox, q.Args, err)
	if err != nil {
		return nil, err
	}
	p.Feed(strings.NewReader(q.Stdin))
	return ps.newProcess(in, p, stats), nil
}

// Stdout returns the program's output, without credentials. The guest keeps it until Safe.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Stderr returns the program's error output, without credentials.
func (p *Process) Stderr() io.Reader { return p.stderr }

// Safe releases the standard output before an offset.
func (p *Process) Safe(offset uint64) error { return p.program.Release(offset) }

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
}

// Wait waits for the program's end; both streams must be read. Errors: Unavailable when this server lets go of it and
// it goes on, Conflict when the sandbox does not run any more; Limit may then say why.
func (p *Process) Wait() (e Ended, err error) {
	o := p.program.Wait()
	if o.Lost != nil {
		// The end of the connection shows here before its reason is known.
		err = p.v.whyLost(p.in.Guest)
	}
	if cove.ErrorCode(err) == cove.Unavailable {
		return Ended{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.Grace)
	defer cancel()
	stats, serr := p.in.Guest.Stats(ctx)
	if serr != nil {
		stats = engine.Stats{}
	}
	stats.OOMKills = max(0, stats.OOMKills-p.oomKills)
	return Ended{ExitCode: o.Code, Limit: o.Limit(stats)}, err
}

// lostGrace is the time in which the end of a sandbox shows after the connection to its guest has ended.
const lostGrace = time.Second

// whyLost returns the reason for the end of a connection to a guest.
func (v *supervisor) whyLost(sb engine.Sandbox) error {
	select {
	case <-sb.Done():
	case <-v.ended:
	case <-v.o.Clock.After(lostGrace):
	}
	return v.whyLeft()
}

// Holds returns the requests of the program's sandbox that wait for an answer, the oldest first, and a channel that is
// closed when they change; nil without a network.
func (p *Process) Holds() ([]approval.Hold, <-chan struct{}) {
	if p.in.way == nil {
		return nil, nil
	}
	return p.in.way.Holds()
}
