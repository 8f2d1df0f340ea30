package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Sandboxes is a Runner that makes a sandbox for each command.
type Sandboxes struct {
	Engine  engine.Engine
	Limits  cove.Limits
	Network egress.Network
	// OpenRoute opens the way out of a sandbox with a network.
	OpenRoute func(id cove.SandboxID, n egress.Network) (egress.Route, error)
	Clock     clock.Clock
	Files     *files.Files // opens what commands have mounted
}

// Run implements Runner.
func (s Sandboxes) Run(ctx context.Context, c Command) (end Ended, err error) {
	err = s.with(ctx, c, func(ctx context.Context, j *job.Job, p guest.ProcessSpec, route egress.Route) error {
		if end.Code, err = s.attend(ctx, j, c, p); err == nil && end.Code != 0 {
			end.Hint = lacked(c, route)
		}
		return err
	})
	return end, err
}

// lacked says what of the network a command did not reach, with the flags that allow it.
func lacked(c Command, route egress.Route) string {
	switch {
	case c.Offline:
		return ""
	case route == nil:
		return "it had no network: where it needs one, --preset NAME or --allow HOST opens it"
	}
	var all []string
	for _, d := range route.Denied() {
		if d.Untrusted {
			all = append(all, fmt.Sprintf("it does not accept the sandbox's authority at %s: %s", d.Place, d.Flag))
			continue
		}
		all = append(all, fmt.Sprintf("the policy denied %s: allow it with %s", d.Place, d.Flag))
	}
	return strings.Join(all, "; ")
}

// With makes the sandbox of a command, which is to be started in it as p says, for as long as use takes. It ends the
// context of use where the command fills the disk.
func (s Sandboxes) With(ctx context.Context, c Command,
	use func(ctx context.Context, j *job.Job, p guest.ProcessSpec) error) (err error) {
	return s.with(ctx, c, func(ctx context.Context, j *job.Job, p guest.ProcessSpec, _ egress.Route) error {
		return use(ctx, j, p)
	})
}

// with is With; route is nil for a sandbox without a network.
func (s Sandboxes) with(ctx context.Context, c Command,
	use func(ctx context.Context, j *job.Job, p guest.ProcessSpec, route egress.Route) error) (err error) {
	limits := s.Limits
	limits.Disk = min(limits.Disk, c.FileSize)
	plan := provision.Plan{ID: cove.NewSandboxID(), Layer: c.Layer, Bare: true,
		Rootfs:  engine.Rootfs{Kind: engine.RootfsDir, Dir: c.Stack[0], Layers: c.Stack[1:]},
		Shape:   cove.Shape{Limits: limits, User: cove.RootUser},
		Binding: engine.Binding{Hostname: rootfs.Hostname}}
	if err := s.attach(ctx, c.Mounts, &plan.Binding); err != nil {
		plan.Binding.Close()
		return err
	}
	env := c.Env
	var route egress.Route
	if s.Network.Mode != "" && s.Network.Mode != cove.NetworkNone && !c.Offline {
		plan.Network = s.Network.Mode
		plan.OpenRoute = func(id cove.SandboxID) (_ provision.Route, err error) {
			route, err = s.OpenRoute(id, s.Network)
			return route, err
		}
	}
	j, err := job.Open(ctx, s.Engine, s.Clock, plan)
	if err != nil {
		return err
	}
	if route != nil {
		defer route.Close()
		var own []string
		for name, value := range route.Env() {
			own = append(own, name+"="+value)
		}
		env = rootfs.LastWins(append(own, env...))
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if c.Script != nil {
		if err := j.Guest().WriteFile(ctx, c.Script.Path, 0o755, c.Script.Data); err != nil {
			return fmt.Errorf("place a heredoc: %w", err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { defer close(watched); s.watch(ctx, c.Disk, cancel) }()
	defer func() { cancel(nil); <-watched }()
	return use(ctx, j, guest.ProcessSpec{Args: c.Args, Env: env, Dir: c.Dir}, route)
}

// attach adds the mounts of a command to a binding.
func (s Sandboxes) attach(ctx context.Context, all []Mount, b *engine.Binding) (err error) {
	for _, m := range all {
		a := engine.Attachment{Target: m.Target, ReadOnly: m.ReadOnly, Memory: m.Memory}
		if a.Owners = m.Memory == nil; a.Owners {
			if a.Place, err = s.Files.Open(ctx, m.Place); err != nil {
				return err
			}
		}
		b.Attachments = append(b.Attachments, a)
	}
	return nil
}

func (s Sandboxes) attend(ctx context.Context, j *job.Job, c Command, p guest.ProcessSpec) (int, error) {
	p.Alone = true
	o, err := j.Run(ctx, p, process.Attendance{Stdout: c.Out, Stderr: c.Out})
	if foreign := process.Foreign(c.Args[0], err); foreign != nil {
		return 0, foreign
	}
	if failure, ok := errors.AsType[*guest.Failure](err); ok && failure.Kind == guest.FailNotFound {
		return 0, cove.Errorf(cove.InvalidArgument, "the image has no program %.200q, or no directory %.200q", c.Args[0],
			c.Dir)
	}
	if err != nil {
		return 0, err
	}
	stats, err := j.Stats(context.WithoutCancel(ctx))
	if err != nil {
		return 0, err
	}
	if limit := o.Limit(stats); limit != "" {
		return 0, cove.Errorf(cove.LimitReached, "the limit %q has ended the command", limit).
			WithHint("raise it: --memory SIZE, --pids COUNT, --cpus CORES; or have it write less")
	}
	if o.Lost != nil {
		return 0, o.Lost
	}
	if o.Signal != 0 {
		return 128 + o.Signal, nil
	}
	return o.Code, nil
}

const watchEvery = 20 * time.Millisecond

// watch ends a command that fills the disk of the store: with its layer, where the kernel does not bound that for it,
// or with caches.
func (s Sandboxes) watch(ctx context.Context, dir string, end context.CancelCauseFunc) {
	for {
		if err := layer.Spare(dir); err != nil {
			end(err)
			return
		}
		select {
		case <-s.Clock.After(watchEvery):
		case <-ctx.Done():
			return
		}
	}
}
