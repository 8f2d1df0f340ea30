package sandbox

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/cove-sandbox/cove"
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
	spec := guest.ProcessSpec{Args: q.Args, Env: in.environment(q.Env), Dir: in.place(q.Dir), Stdin: true, Label: label,
		Keep: true}
	stats, err := in.Guest.Stats(ctx)
	if err != nil {
		return nil, err
	}
	if err := ps.noteProcess(ctx, who, "exec", in.Sandbox, q.Args); err != nil {
		return nil, err
	}
	p, err := process.Start(ctx, in.Guest, ps.o.Clock, spec)
	if err != nil {
		err = startFailure(spec, err)
		ps.auditProcess(ctx, who, "exec", in.Sandbox, q.Args, err)
		return nil, err
	}
	p.Feed(strings.NewReader(q.Stdin))
	return newProcess(in, p, stats, func() error { return ps.whyLost(in.Guest) }), nil
}
