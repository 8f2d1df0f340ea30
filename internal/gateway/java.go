package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
)

// java holds the gateway's roots in Java's form, and the paths of Java's trusted certificates in root filesystems.
type java struct {
	roots  func() ca.JavaRoots // computed once
	wanted atomic.Bool         // a sandbox with Java has been opened

	mu   sync.Mutex
	seen map[string]cachedStores // by directory
}

type cachedStores struct {
	stores []string
	at     clock.Instant
}

// A cached result for a machine or an image expires after this time, and the cache is bounded; results for other
// directories are not cached, since they change.
const (
	sightingLife = time.Minute
	maxSightings = 64
)

// stores returns the paths of Java's trusted certificates in a root filesystem.
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
		j.seen = map[string]cachedStores{}
	}
	s = cachedStores{ca.JavaStores(dir), c.Monotonic()}
	j.seen[dir] = s
	return s.stores
}

// bind adds Java's trusted certificates, if the root filesystem contains Java: the keystore is made only then, because
// it takes longer than all other files.
func (j *java) bind(t *trust, b *engine.Binding, root engine.Rootfs, c clock.Clock) error {
	stores := j.stores(root, c)
	if len(stores) == 0 {
		return nil
	}
	j.wanted.Store(true)
	if err := t.writeKeystore(j.roots()); err != nil {
		return err
	}
	var at []engine.File
	for _, s := range stores {
		at = append(at, engine.File{Target: s, Existing: true})
	}
	return b.Show(t.own(keystoreName), at...)
}
