package execution

import (
	"cmp"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// recipe says which prepared sandbox this execution can have: one in which its interpreter is parked, or else an empty
// one; none where something of the request's own is in its sandbox, or where it is root inside.
func (e *execution) recipe() (r pool.Recipe, ok bool) {
	q, root := e.request, e.rootfs
	if cmp.Or(e.network.Mode, cove.NetworkNone) != cove.NetworkNone || len(q.Mounts)+len(q.Attachments) > 0 ||
		q.Bind != "" || q.User.MayBeRoot() || root.Kind != engine.RootfsHost && root.Digest == "" {
		return r, false
	}
	tree, err := identify(root.Stack())
	if err != nil {
		return r, false
	}
	shape := q.Shape
	shape.Limits = e.limits
	shape.Limits.Timeout = 0 // it is the program's, as those of its streams, which a parked one has already
	r = pool.Recipe{Engine: e.engine,
		Key: pool.Key{Engine: e.engine.Name(), Rootfs: root.Kind, Image: root.Digest, Tree: tree}}
	if q.plain() && e.runtime.Parks(q.Code) {
		r.Key.Parked, r.Parked = e.runtime.Name, pool.Parked{Path: e.codePath(), Spec: e.program(), Trial: e.runtime.Trial,
			Preload: e.preload()}
	} else {
		shape.Limits.Stdout, shape.Limits.Stderr = 0, 0
	}
	r.Key.Shape = shape
	r.Plan = func() provision.Plan {
		return provision.Plan{Rootfs: root, Shape: shape, Binding: engine.Binding{Hostname: rootfs.Hostname}}
	}
	return r, true
}

// preload has the interpreter import the modules of the configuration; nil where there are none.
func (e *execution) preload() *pool.Preload {
	modules := e.executions.o.PythonModules
	if e.runtime.Preload == nil || len(modules) == 0 {
		return nil
	}
	p := e.runtime.Preload(modules)
	return &pool.Preload{Place: p.Place, Text: p.Text, Check: p.Check}
}

// plain reports whether the program is given nothing but its code.
func (r Request) plain() bool { return len(r.Args)+len(r.Files)+len(r.Env) == 0 && r.Stdin == nil }

// identify returns the identity of the highest directory of an image, which is made anew when the image comes back.
func identify(files rootfs.Stack) (engine.Identity, error) {
	dir := files[len(files)-1]
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
