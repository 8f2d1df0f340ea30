package execution

import (
	"cmp"
	"context"
	"os"
	goruntime "runtime"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// newPool returns the pool of prepared sandboxes.
func (x *Executions) newPool() *pool.Pool {
	o := x.o.Pool
	o.Spare, o.Clock, o.Log = x.spare, x.o.Clock, x.o.Log
	return pool.New(o)
}

// spare reports whether a processor is free of executions.
func (x *Executions) spare() bool { return x.queue.active() < goruntime.GOMAXPROCS(0) }

// recipe says which prepared sandbox this execution can have: one in which its interpreter is parked, or else an empty
// one; none where something of the request's own is in its sandbox.
func (e *execution) recipe() (r pool.Recipe, ok bool) {
	q, root := e.request, e.rootfs
	if cmp.Or(e.network.Mode, cove.NetworkNone) != cove.NetworkNone || len(q.Mounts)+len(q.Attachments) > 0 ||
		q.Bind != "" || root.Kind != engine.RootfsHost && root.Digest == "" {
		return r, false
	}
	tree, err := identify(root.Dir)
	if err != nil {
		return r, false
	}
	shape := q.Shape
	shape.Limits = e.limits
	shape.Limits.Timeout = 0 // it is the program's, as those of its streams, which a parked one has already
	r = pool.Recipe{Engine: e.engine,
		Key: pool.Key{Engine: e.engine.Name(), Rootfs: root.Kind, Image: root.Digest, Tree: tree}}
	if q.plain() && e.runtime.Parked > 0 && len(q.Code) <= e.runtime.Parked {
		r.Key.Parked, r.Parked = e.runtime.Name, pool.Parked{Path: e.codePath(), Spec: e.program()}
	} else {
		shape.Limits.Stdout, shape.Limits.Stderr = 0, 0
	}
	r.Key.Shape = shape
	r.Plan = func() provision.Plan {
		return provision.Plan{Rootfs: root, Shape: shape, Binding: engine.Binding{Hostname: rootfs.Hostname}}
	}
	return r, true
}

// plain reports whether the program is given nothing but its code.
func (r Request) plain() bool { return len(r.Args)+len(r.Files)+len(r.Env) == 0 && r.Stdin == nil }

// Warm keeps n sandboxes prepared for plain executions of a language, in the default image and with the default limits.
// Errors: those of the language, the image and the engine; Unsupported where nothing can be prepared for them.
func (x *Executions) Warm(ctx context.Context, language string, n int) error {
	e, err := x.resolve(cove.System(""), Request{Language: language})
	if err != nil {
		return err
	}
	if err := x.equip(ctx, e); err != nil {
		return err
	}
	defer e.release()
	r, ok := e.recipe()
	if !ok {
		return cove.Errorf(cove.Unsupported, "no sandbox can be prepared for %s: each has a network", language).
			WithHint("see sandbox.pool in docs/configuration.md")
	}
	x.pool.Warm(r, n)
	return nil
}

// Prepared describes the sandboxes that are prepared, by what they are for.
func (x *Executions) Prepared() []pool.Status { return x.pool.Status() }

// Drain destroys the sandboxes that are prepared, and forgets what was asked for and what Warm has asked for.
func (x *Executions) Drain() { x.pool.Drain() }

// identify is the identity of an image's tree, which is made anew under its name when the image comes back.
func identify(dir string) (engine.Identity, error) {
	if dir == "" {
		return engine.Identity{}, nil
	}
	place, err := os.Open(dir)
	if err != nil {
		return engine.Identity{}, err
	}
	defer place.Close()
	return engine.Identify(place)
}

// replace makes another sandbox in the place of a prepared one that has failed, and starts the program in that. On
// error sb is the one that is left.
func (e *execution) replace(ctx context.Context, failed *provision.Sandbox, why error) (sb *provision.Sandbox,
	p *process.Process, at clock.Instant, err error) {
	x := e.executions
	x.o.Log.Warn("a prepared sandbox has failed, and another one takes its place", "sandbox", failed.ID(), "error", why)
	if sb, err = e.make(ctx); err != nil {
		return failed, nil, 0, err
	}
	x.clean.Go(func() { x.tearDown(failed) })
	p, at, err = e.start(ctx, sb, nil)
	return sb, p, at, err
}
