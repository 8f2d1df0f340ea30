// Package engines opens the engines that Cove knows. A new engine is one row of its table.
package engines

import (
	"context"
	"log/slog"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Options state what the process that opens engines provides. Each engine uses its part.
type Options struct {
	Guest        string          // absolute path of the cove-guest binary
	RunDir       string          // for locks and sockets; exists
	Instance     cove.InstanceID // owner of the sandboxes; held in RunDir
	CgroupParent string          // name of the control group that holds all of Cove's
	Ready        int             // guests to keep ready
	Single       bool            // one sandbox will be asked for
	Paths        hostpath.Rules  // of the sources of mounts
	Disks        string          // directory below which sandboxes' disks are mounted, or ""
	Sweep        bool            // remove what dead instances have left whenever an engine is opened
	Log          *slog.Logger
}

// table opens the engines of engine.Names.
var table = map[string]func(Options) (engine.Engine, error){engine.Native: openNative, engine.Docker: openDocker,
	engine.Podman: openPodman}

// New makes the set of all engines; nothing is opened yet. fallback is the name of the default engine, or engine.Auto.
func New(o Options, fallback string) *engine.Set {
	var sources []engine.Source
	for _, name := range engine.Names() {
		sources = append(sources, engine.Source{Name: name, Open: func() (engine.Engine, error) {
			e, err := table[name](o)
			if err == nil && o.Sweep {
				if _, err := e.Sweep(context.Background()); err != nil {
					o.Log.Warn("cannot remove what dead processes have left", "engine", name, "error", err)
				}
			}
			return e, err
		}, Note: func() error { return note(o, name) }})
	}
	return engine.NewSet(fallback, sources...)
}
