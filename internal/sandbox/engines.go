package sandbox

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// Auto chooses the first engine that can be used.
const Auto = "auto"

// Unused is the health of an engine that nobody has asked for yet.
const Unused = "not used yet"

// EngineSource opens an engine when it is first needed.
type EngineSource struct {
	Name string
	Open func() (engine.Engine, error)
}

// engines opens each source at most once at a time; one that failed is tried
// again, because its daemon may have come up meanwhile.
type engines struct {
	sources  []EngineSource
	fallback string

	mu     sync.Mutex
	opened map[string]engine.Engine
	failed map[string]error
}

func newEngines(sources []EngineSource, fallback string) *engines {
	return &engines{sources: sources, fallback: fallback, opened: map[string]engine.Engine{}, failed: map[string]error{}}
}

// get returns the engine of that name; empty is the default, Auto the first
// that can be used.
func (e *engines) get(name string) (engine.Engine, error) {
	if name == "" {
		name = e.fallback
	}
	var names []string
	var errs []error
	for _, s := range e.sources {
		names = append(names, s.Name)
		if name != Auto && name != s.Name {
			continue
		}
		opened, err := e.open(s)
		if err == nil {
			return opened, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, cove.Errorf(cove.InvalidArgument, "there is no engine %.64q", name).
			WithHint("choose one of %s or %s", strings.Join(names, ", "), Auto)
	}
	return nil, errors.Join(errs...)
}

func (e *engines) open(s EngineSource) (engine.Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if opened := e.opened[s.Name]; opened != nil {
		return opened, nil
	}
	opened, err := s.Open()
	e.failed[s.Name] = err
	if err == nil {
		e.opened[s.Name] = opened
	}
	return opened, err
}

func (e *engines) all() []engine.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []engine.Engine
	for _, s := range e.sources {
		if opened := e.opened[s.Name]; opened != nil {
			all = append(all, opened)
		}
	}
	return all
}

func (e *engines) health() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	health := map[string]string{}
	for _, s := range e.sources {
		switch {
		case e.opened[s.Name] != nil:
			health[s.Name] = "ok"
		case e.failed[s.Name] != nil:
			health[s.Name] = e.failed[s.Name].Error()
		default:
			health[s.Name] = Unused
		}
	}
	return health
}

func (e *engines) close() error {
	var errs []error
	for _, opened := range e.all() {
		errs = append(errs, opened.Close())
	}
	return errors.Join(errs...)
}

// rootfs resolves an image for an engine and holds it until release is called.
// An engine that holds images itself is asked by its own references, unless
// the reference names another place.
func (m *Manager) rootfs(ctx context.Context, eng engine.Engine, ref string) (root engine.Rootfs, release func(), err error) {
	release = func() {}
	if ref == "" || ref == "host" {
		return engine.Rootfs{Kind: engine.RootfsHost}, release, nil
	}
	scheme, _, _ := strings.Cut(ref, ":")
	elsewhere := scheme == "dir" || scheme == "tar" || scheme == "oci" || scheme == "docker-archive"
	if eng.Capabilities().OwnImages && !elsewhere {
		if own, ok := eng.(engine.Resolver); ok {
			root, err = own.Resolve(ctx, ref)
			return root, release, err
		}
		return engine.Rootfs{Kind: engine.RootfsImage, Image: ref}, release, nil
	}
	if root, err = m.o.Images.Resolve(ctx, ref); err == nil && root.Digest != "" {
		release, err = m.o.Images.Hold(ctx, root.Digest)
	}
	return root, release, err
}
