package daemon

import (
	"context"
	"sync"

	"github.com/cove-sandbox/cove/internal/build"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// OpenShell begins a shell in a terminal of a size, with further variables, and shows it to its viewer.
type OpenShell func(size terminal.Size, env ...string) (*terminals.Viewer, error)

// inspect makes a sandbox for a shell, while look takes.
func (d *Daemon) inspect(ctx context.Context, run build.Sandboxes, f build.Failed,
	look func(context.Context, build.Failed, OpenShell) error) error {
	var serving sync.WaitGroup
	defer serving.Wait() // for what ends with the sandbox
	return run.With(ctx, f.Shell, func(ctx context.Context, j *job.Job, p guest.ProcessSpec) error {
		all := terminals.New(terminals.Options{Sandbox: j, CPUs: run.Limits.CPUs, Clock: clock.Real(), Log: d.log,
			Serving: &serving})
		return look(ctx, f, func(size terminal.Size, env ...string) (*terminals.Viewer, error) {
			p.Env = rootfs.LastWins(append(env, p.Env...))
			t, err := all.Start(ctx, p, size, func() {})
			if err != nil {
				return nil, err
			}
			return t.Attach(size, true)
		})
	})
}
