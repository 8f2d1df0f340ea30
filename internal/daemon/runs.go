package daemon

import (
	"context"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/work"
)

// newRuns makes what has the runs of agents.
func (d *Daemon) newRuns() *run.Runner {
	return run.New(run.Options{
		Sandboxes: d.sandboxes, Processes: d.processes, Agents: d.agents, Work: work.Runs{Service: d.work}, Store: d.vault, Flush: d.recorder.Flush,
		Dir: filepath.Join(d.cfg.Home, "runs"), Clock: clock.Real(), Log: d.log,
	})
}

// tendRuns reconciles runs until ctx ends.
func (d *Daemon) tendRuns(ctx context.Context) {
	for {
		select {
		case <-time.After(execution.ReapInterval):
		case <-ctx.Done():
			return
		}
		if err := d.runs.Reconcile(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("not every run could be put right", "error", err)
		}
	}
}
