package daemon

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/layers"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// newRuns makes what has the runs of agents.
func (d *Daemon) newRuns() *run.Runner {
	return run.New(run.Options{
		Sandboxes: d.manager, Agents: runAgents{d.agents}, Work: runWork{work{d.manager, d.openRepos, outlet{d}}}, Store: d.store, Flush: d.recorder.Flush,
		Dir: filepath.Join(d.cfg.Home, "runs"), Clock: clock.Real(), Log: d.log,
	})
}

// tendRuns looks after runs that nobody has until ctx ends.
func (d *Daemon) tendRuns(ctx context.Context) {
	for {
		select {
		case <-time.After(sandbox.ReapInterval):
		case <-ctx.Done():
			return
		}
		if err := d.runs.Reconcile(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("not every run could be put right", "error", err)
		}
	}
}

// runAgents are the agents of this machine, as runs need them.
type runAgents struct{ *agents }

var _ run.Agents = runAgents{}

// Equip implements run.Agents.
func (a runAgents) Equip(ctx context.Context, q run.Want, install bool, progress func(workspace.Step)) (run.Equipment, error) {
	want := layers.Want{Choice: agent.Choice{Model: q.Model, WorkDir: q.WorkDir, Gateway: q.Access == "proxy"}, ProviderName: q.Provider}
	of, layer, outfit, err := a.layers.Outfit(q.Agent, want)
	if install && cove.ErrorCode(err) == cove.RuntimeMissing && of.Package.Npm != "" {
		if _, err := a.layers.Install(ctx, q.Agent, "", progress); err != nil {
			return run.Equipment{}, err
		}
		of, layer, outfit, err = a.layers.Outfit(q.Agent, want)
	}
	if err != nil {
		return run.Equipment{}, err
	}
	return run.Equipment{
		Agent: of.Name, Version: layer.Version, Network: outfit.Network, Env: outfit.Env, Mounts: outfit.Mounts, Path: outfit.Path, Files: outfit.Files, Screen: outfit.Screen,
		Command: of.HeadlessCommand, Parser: of.NewParser,
	}, nil
}

// runWork is the work of sandboxes, as runs need it.
type runWork struct{ work }

var _ run.Work = runWork{}

// Changes implements run.Work.
func (w runWork) Changes(ctx context.Context, ref string, who sandbox.Caller) ([]api.WorkChange, error) {
	changes, err := w.work.Changes(ctx, ref, who, repos.Work{}, repos.ChangeStyle{Renames: true})
	return httpapi.WorkChanges(changes), err
}

// Patch implements run.Work.
func (w runWork) Patch(ctx context.Context, ref string, who sandbox.Caller, out io.Writer) error {
	return w.Diff(ctx, ref, who, repos.Work{}, repos.DiffStyle{}, out)
}
