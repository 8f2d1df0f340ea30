package execution

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// probeTimeout bounds the question for all versions together.
const probeTimeout = 20 * time.Second

// Runtime describes a runtime in an image. Version is empty and Missing has a remedy when the image lacks it.
type Runtime struct {
	Name    string
	Version string
	Missing string
	Limits  cove.Limits // defaults, the timeout included
}

// Runtimes returns every runtime, with its version in an image. It asks all of them in one sandbox, whose CPU time is
// the principal's. Errors: Overloaded, those of the image and the engine.
func (x *Executions) Runtimes(ctx context.Context, who cove.Principal, image, engineName string) ([]Runtime, error) {
	if err := x.Spare(ctx, who); err != nil {
		return nil, err
	}
	j, t, root, release, err := x.openProbe(ctx, image, engineName)
	if err != nil {
		return nil, err
	}
	defer x.discard(t, j.Sandbox, release)
	ctx, charge := x.Charge(ctx, who)
	defer charge()
	defer func() {
		if err := j.Count(ctx); err != nil {
			x.o.Log.Warn("the CPU time of a question for versions is not counted", "error", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	all := runtime.All()
	rows := make([]Runtime, len(all))
	var asked sync.WaitGroup
	for i, r := range all {
		asked.Go(func() { rows[i] = x.ask(ctx, j, r, root, image) })
	}
	asked.Wait()
	return rows, nil
}

// openProbe makes the sandbox in which to ask.
func (x *Executions) openProbe(ctx context.Context, image, engineName string) (j *job.Job, t *turn, root engine.Rootfs,
	release func(), err error) {
	if t, err = x.queue.enter(ctx, probes, probeTimeout); err != nil {
		return nil, nil, root, nil, err
	}
	x.clean.Go(func() { x.queue.watch(t, func() time.Duration { return 0 }) })
	defer func() {
		if err != nil {
			x.queue.leave(t)
		}
	}()
	eng, err := x.o.Engines.Get(engineName)
	if err != nil {
		return nil, t, root, nil, err
	}
	// Enough for every toolchain to say its version at the same time.
	limits, err := x.o.Bounds.Resolve(runtime.Runtime{Limits: cove.Limits{Memory: 512 << 20, PIDs: 200}}, cove.Limits{})
	if err != nil {
		return nil, t, root, nil, err
	}
	if root, release, err = provision.Rootfs(ctx, x.o.Images, eng, image); err != nil {
		return nil, t, root, nil, err
	}
	j, err = job.Open(ctx, eng, x.o.Clock, provision.Plan{
		Rootfs: root, Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
		Binding: engine.Binding{Hostname: rootfs.Hostname},
	})
	if err != nil {
		release()
	}
	return j, t, root, release, err
}

// ask asks one runtime for its version.
func (x *Executions) ask(ctx context.Context, j *job.Job, r runtime.Runtime, root engine.Rootfs, image string) Runtime {
	row := Runtime{Name: r.Name}
	if limits, err := x.o.Bounds.Resolve(r, cove.Limits{}); err == nil {
		row.Limits = limits
	}
	var said bytes.Buffer
	o, err := j.Run(ctx, guest.ProcessSpec{
		Args: r.Probe, Env: append(append(rootfs.Env(cove.CodeUser), root.Env...), r.Env...), Dir: cove.WorkDir,
		StdoutLimit: 4096, StderrLimit: 4096,
	}, process.Attendance{Stdout: &said})
	if err != nil || o.Lost != nil || o.Code != 0 {
		row.Missing = cove.ErrorHint(r.Missing(image))
		return row
	}
	row.Version, _, _ = strings.Cut(strings.TrimSpace(said.String()), "\n")
	return row
}
