package execution

import (
	"cmp"
	"context"
	"os"
	goruntime "runtime"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// Pool are the prepared sandboxes of an Executions.
type Pool struct {
	executions *Executions
	kept       *pool.Pool
}

func newPool(x *Executions) *Pool {
	o := x.o.Pool
	o.Clock, o.Log = x.o.Clock, x.o.Log
	o.Spare = func() bool { return x.queue.active() < goruntime.GOMAXPROCS(0) }
	return &Pool{executions: x, kept: pool.New(o)}
}

func (p *Pool) claim(ctx context.Context, r pool.Recipe) *pool.Prepared { return p.kept.Claim(ctx, r) }

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
// Errors: those of the language, the image and the engine; InvalidArgument for more than the pool may have; Unsupported
// where nothing can be prepared for them.
func (p *Pool) Warm(ctx context.Context, language string, n int) error {
	x := p.executions
	if n < 0 || n > x.o.Pool.Size {
		return cove.Errorf(cove.InvalidArgument, "%d sandboxes cannot be kept prepared for %.64q", n, language).
			WithHint("the pool has at most %d of a kind; raise sandbox.pool.size", x.o.Pool.Size)
	}
	e, err := resolve(x, cove.System(""), Request{Language: language})
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
			WithHint("see \"prepared sandboxes\" in docs/running.md")
	}
	p.kept.Warm(r, n)
	return nil
}

// Status describes the sandboxes that are prepared, by their keys, and counts what became of requests.
func (p *Pool) Status() ([]pool.Status, pool.Totals) { return p.kept.Status() }

// Drain destroys the sandboxes that are prepared, and forgets what was asked for and what Warm has asked for.
func (p *Pool) Drain() { p.kept.Drain() }

// identify returns the identity of an image's tree, which is made anew under its name when the image comes back.
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
