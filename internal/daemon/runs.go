package daemon

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/httpapi"
	"github.com/cove-sandbox/cove/internal/repos"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
)

// newRuns makes what has the runs of agents.
func (d *Daemon) newRuns() *run.Runner {
	return run.New(run.Options{
		Sandboxes: d.manager, Agents: d.agents, Work: runWork{work{d.manager, d.openRepos, outlet{d}}}, Store: store.NewVault(d.store), Flush: d.recorder.Flush,
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

// runWork is the work of sandboxes, as runs need it.
type runWork struct{ work }

var _ run.Work = runWork{}

// Changes implements run.Work.
func (w runWork) Changes(ctx context.Context, who cove.Principal, ref string) ([]api.WorkChange, error) {
	changes, err := w.work.Changes(ctx, who, ref, repos.Work{}, repos.ChangeStyle{Renames: true})
	return httpapi.WorkChanges(changes), err
}

// Patch implements run.Work.
func (w runWork) Patch(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	return w.Diff(ctx, who, ref, repos.Work{}, repos.DiffStyle{}, out)
}
