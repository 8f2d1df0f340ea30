package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
)

// java is what a gateway knows of Java: its own roots, in Java's form, and where
// root filesystems have theirs.
type java struct {
	roots  func() ca.JavaRoots // once
	wanted atomic.Bool         // there has been a sandbox with Java

	mu   sync.Mutex
	seen map[string]sighting // by directory
}

type sighting struct {
	stores []string
	at     clock.Instant
}

// A machine or an image is looked at again after so long, and so many are
// remembered; other directories change.
const (
	sightingLife = time.Minute
	maxSightings = 64
)

// stores are the places of what Java trusts in a root filesystem.
func (j *java) stores(root engine.Rootfs, c clock.Clock) []string {
	dir := map[engine.RootfsKind]string{engine.RootfsHost: "/", engine.RootfsDir: root.Dir}[root.Kind]
	switch {
	case dir == "":
		return nil
	case root.Kind == engine.RootfsDir && root.Digest == "":
		return ca.JavaStores(dir)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.seen[dir]
	if ok && c.Since(s.at) < sightingLife {
		return s.stores
	}
	if j.seen == nil || len(j.seen) >= maxSightings {
		j.seen = map[string]sighting{}
	}
	s = sighting{ca.JavaStores(dir), c.Monotonic()}
	j.seen[dir] = s
	return s.stores
}

// bindJava adds what Java is to trust, where there is Java: only then is it
// made, as it takes longer than all the rest.
func (w *Way) bindJava(b *engine.Binding, root engine.Rootfs) error {
	stores := w.gateway.java.stores(root, w.gateway.o.Clock)
	if len(stores) == 0 {
		return nil
	}
	w.gateway.java.wanted.Store(true)
	if err := w.trust.writeKeystore(&w.gateway.java); err != nil {
		return err
	}
	var at []engine.File
	for _, s := range stores {
		at = append(at, engine.File{Target: s, Existing: true})
	}
	return b.Show(w.trust.own(keystoreName), at...)
}
