package sandbox

import (
	"cmp"
	"path"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
)

// show returns the wire form of a record for a caller.
func show(who cove.Principal, b store.Sandbox) api.Sandbox {
	spec, shown := b.Spec, apispec.SpecOf(b.Spec.Spec)
	s := api.Sandbox{
		ID: string(b.ID), Name: b.Name, State: string(b.State), Error: b.Reason, Engine: spec.Engine, Isolation: shown.Isolation, Image: cmp.Or(spec.Image, "host"),
		Profile: spec.Profile, Agent: spec.Agent, Directory: spec.Directory, WorkDir: spec.WorkDir, Network: string(cmp.Or(spec.Mode, cove.NetworkNone)),
		AllowPR: spec.AllowPR, SSHAgent: spec.SSHAgent != "", Limits: *shown.Limits, Mounts: shown.Mounts, Exposes: Exposed(spec.Mounts), Labels: spec.Labels,
		Within: string(spec.Within), CreatedBy: b.Owner.String(), CreatedAt: b.CreatedAt, LastUsedAt: b.LastUsedAt,
	}
	if !who.IsOwner() {
		s.Directory = "" // where the owner keeps things is the owner's
	}
	if spec.Repository != nil {
		s.Repository = new(spec.Repository.SandboxRepository)
	}
	return s
}

// Exposed returns the variables whose real tokens a sandbox with these mounts can read.
func Exposed(mounts []cove.Mount) (variables []string) {
	for _, m := range mounts {
		if path.Dir(m.Target) == cove.Tokens {
			variables = append(variables, path.Base(m.Target))
		}
	}
	return variables
}

// terminalsShown returns the wire form of a sandbox's terminals.
func terminalsShown(ttys *terminals.Set) []api.Terminal {
	all := []api.Terminal{}
	for _, t := range ttys.List() {
		i := t.Info()
		all = append(all, api.Terminal{
			ID: i.ID, Args: i.Args, Title: i.Title, Attached: i.Attached, Rows: i.Size.Rows, Columns: i.Size.Columns,
			CreatedAt: i.Created.UTC(), ExitCode: i.Exit,
		})
	}
	return all
}

// placeOf returns the path of a sandbox's checkout, inside.
func placeOf(spec store.SandboxSpec) string { return cmp.Or(spec.Place, cove.Workspace) }

// stateWithin returns the state of a checkout in a shared sandbox. It is pure.
func stateWithin(record, host store.Sandbox) cove.State {
	if record.State == cove.StateRunning {
		return host.State
	}
	return record.State
}

// wrongState says what can be done with a sandbox instead.
func wrongState(record store.Sandbox, doing string) error {
	e := cove.Errorf(cove.Conflict, "the sandbox %s is %s: it is not possible to %s it", record.Name, record.State, doing)
	switch record.State {
	case cove.StateStopped:
		return e.WithHint("start it with \"cove start %s\"", record.Name)
	case cove.StatePaused:
		return e.WithHint("resume it with \"cove resume %s\"", record.Name)
	case cove.StateFailed:
		return e.WithHint("%s; remove it with \"cove destroy %s\"", cmp.Or(record.Reason, "it has failed"), record.Name)
	}
	return e.WithHint("try again in a moment")
}
