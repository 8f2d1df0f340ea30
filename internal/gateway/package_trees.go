package gateway

import (
	"maps"
	"slices"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

// maxTrees bounds the trees of a sandbox: each takes descriptors, of which a guest takes some dozens at once.
const maxTrees = 8

// show adds to a binding what the cache has of npm, as npm's own files: trees of registries from which the sandbox may
// read everything, and to which no credential of its own is bound. It sends no request. A tree that has gone meanwhile
// is none.
//
// A tree changes while sandboxes have it. The kernel promises only that this does no harm: a file that came later may
// not be seen, and is fetched as any other; what has gone may be seen until the sandbox ends.
func (s *packageStage) show(b *engine.Binding) {
	if s.cache == nil || !s.shares() {
		return
	}
	all := s.cache.Shown(s.owner)
	overlay := &engine.Overlay{Name: "." + npm}
	for _, registry := range slices.Sorted(maps.Keys(all)) {
		host, port, err := policy.ParseAuthority(registry, 443)
		if err != nil || len(overlay.Lower) == maxTrees || s.credentials.Binds(host, port) || !s.reads(host, port) {
			continue
		}
		place, err := all[registry].Open()
		if err != nil {
			continue
		}
		s.cache.Use(cache.Tree{Owner: s.owner, Registry: registry})
		overlay.Lower = append(overlay.Lower, place)
	}
	if len(overlay.Lower) > 0 {
		b.Overlay = overlay
	}
}

// reads reports whether the sandbox may read everything from a host without asking.
func (s *packageStage) reads(host policy.Host, port uint16) bool {
	return s.judge(policy.Request{Layer: policy.LayerConnect, Host: host, Port: port}).Action == policy.Allow &&
		!slices.ContainsFunc(s.both(), func(p *policy.Policy) bool { return !policy.Reads(p, host, port) })
}
