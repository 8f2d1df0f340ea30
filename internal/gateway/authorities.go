package gateway

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/prewarm"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// authorities makes the certificate authorities of sandboxes, with the files that make a sandbox trust its own. Only
// the sandbox's id must be known for that, so some are made ahead.
type authorities struct {
	dir    string        // see Options.Dir
	keep   *ca.Store     // see Options
	bundle func() []byte // roots that sandboxes trust besides
	clock  clock.Clock
	java   java
	pool   *prewarm.Buffer[*trust]
	clean  sync.WaitGroup // removals of files

	mu   sync.Mutex
	next map[cove.SandboxID]*trust // by ids that nextID has returned
}

func newAuthorities(o *Options) *authorities {
	a := &authorities{dir: o.Dir, keep: o.Keep, bundle: o.Bundle, clock: o.Clock, next: map[cove.SandboxID]*trust{}}
	if a.bundle == nil {
		a.bundle = func() []byte { return nil }
	}
	a.java.roots = sync.OnceValue(func() ca.JavaRoots { return ca.NewJavaRoots(a.bundle()) })
	ahead := o.Ahead
	if o.Keep != nil {
		ahead = 0
	}
	a.pool = prewarm.New(ahead, a.makeAhead, (*trust).remove)
	return a
}

// nextID returns the id for a sandbox that is about to get a route; see Gateway.Next.
func (a *authorities) nextID() cove.SandboxID {
	t, ok := a.pool.Take()
	if !ok {
		return cove.NewSandboxID()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next[t.sandbox] = t
	return t.sandbox
}

// claim returns, once, the authority made ahead for a sandbox; nil if there is none.
func (a *authorities) claim(sandbox cove.SandboxID) *trust {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.next[sandbox]
	delete(a.next, sandbox)
	return t
}

// of returns the authority of a sandbox: made ahead, stored, or made now.
func (a *authorities) of(sandbox cove.SandboxID) (*trust, error) {
	if t := a.claim(sandbox); t != nil {
		return t, nil
	}
	return a.make(sandbox)
}

// make makes a sandbox's authority and files, or loads the stored authority, which alone is left on error.
func (a *authorities) make(sandbox cove.SandboxID) (t *trust, err error) {
	t = &trust{sandbox: sandbox, dir: filepath.Join(a.dir, string(sandbox))}
	if a.keep == nil {
		t.Authority, err = ca.New(sandbox, a.clock)
	} else {
		t.Authority, err = a.stored(sandbox)
	}
	if err == nil {
		err = t.write(a.bundle())
	}
	if err != nil && a.keep == nil {
		t.remove()
	}
	return t, err
}

func (a *authorities) makeAhead(context.Context) (*trust, error) {
	t, err := a.make(cove.NewSandboxID())
	if err == nil && a.java.wanted.Load() {
		if err = t.writeKeystore(a.java.roots()); err != nil {
			t.remove()
		}
	}
	return t, err
}

// stored returns a sandbox's stored authority, or a new one that it stores.
func (a *authorities) stored(sandbox cove.SandboxID) (*ca.Authority, error) {
	authority, err := a.keep.Load(sandbox, a.clock)
	if cove.ErrorCode(err) != cove.NotFound {
		return authority, err
	}
	if authority, err = ca.New(sandbox, a.clock); err != nil {
		return nil, err
	}
	return authority, a.keep.Save(authority)
}

// discard removes the files of a closed sandbox in the background; nil is none.
func (a *authorities) discard(t *trust) {
	if t != nil && a.keep == nil {
		a.clean.Go(t.remove)
		a.pool.Refill()
	}
}

func (a *authorities) remove(sandbox cove.SandboxID) error {
	os.RemoveAll(filepath.Join(a.dir, string(sandbox)))
	return a.keep.Remove(sandbox)
}

func (a *authorities) close() {
	a.mu.Lock()
	for _, t := range a.next {
		a.discard(t)
	}
	clear(a.next)
	a.mu.Unlock()
	a.pool.Close()
	a.clean.Wait()
}

const keystoreName = "cacerts" // the name of Java's keystore beside them

// trust is an authority, and a directory with the files that make one sandbox trust it.
type trust struct {
	*ca.Authority
	sandbox  cove.SandboxID
	dir      string
	keystore bool // the keystore exists
}

func (t *trust) write(roots []byte) error {
	err := os.MkdirAll(filepath.Dir(t.dir), 0o755)
	if err == nil {
		err = os.Mkdir(t.dir, 0o755)
	}
	write := os.WriteFile
	if errors.Is(err, fs.ErrExist) { // a process may be reading the files of an earlier server
		write, err = atomicfile.Write, nil
	}
	if err == nil {
		err = write(t.file(ca.Bundle), t.Bundle(roots), 0o644)
	}
	if err == nil {
		err = write(t.file(ca.Certificate), t.Certificate(), 0o644)
	}
	return t.unwritten(err)
}

func (t *trust) writeKeystore(roots ca.JavaRoots) error {
	if t.keystore {
		return nil
	}
	keystore, err := t.JavaKeystore(roots)
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.file(keystoreName), keystore, 0o644); err != nil {
		return t.unwritten(err)
	}
	t.keystore = true
	return nil
}

func (t *trust) unwritten(err error) error {
	if err == nil {
		return nil
	}
	return cove.Errorf(cove.StorageFull, "cannot write the certificates that sandbox %s trusts: %w", t.sandbox, err).
		WithHint("free some space in the run directory")
}

func (t *trust) remove() { os.RemoveAll(t.dir) }

// file returns the host's path of the file at a place inside.
func (t *trust) file(place string) string { return filepath.Join(t.dir, path.Base(place)) }

// own names the file for place, for a sandbox's binding.
func (t *trust) own(place string) hostpath.Own {
	return hostpath.Own{Dir: t.dir, Name: path.Base(place)}
}

// bind mounts the files into the sandbox: at their own places, and over the bundle of the root filesystem.
func (t *trust) bind(b *engine.Binding) error {
	bundles := []engine.File{{Target: ca.Bundle}}
	for _, place := range ca.SystemBundles {
		bundles = append(bundles, engine.File{Target: place, Existing: true})
	}
	if err := b.Show(t.own(ca.Bundle), bundles...); err != nil {
		return err
	}
	return b.Show(t.own(ca.Certificate), engine.File{Target: ca.Certificate})
}

// java holds the gateway's roots in Java's form, and the paths of Java's trusted certificates in root filesystems.
type java struct {
	roots  func() ca.JavaRoots // computed once
	wanted atomic.Bool         // a sandbox with Java has been opened

	mu   sync.Mutex
	seen map[string]cachedStores // by the digest of an image; empty is the machine
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

func (j *java) stores(root engine.Rootfs, c clock.Clock) []string {
	files, key := rootfs.Stack{"/"}, ""
	switch {
	case root.Kind == engine.RootfsDir && root.Digest == "":
		return ca.JavaStores(root.Stack())
	case root.Kind == engine.RootfsDir:
		files, key = root.Stack(), root.Digest
	case root.Kind != engine.RootfsHost:
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.seen[key]
	if ok && c.Since(s.at) < sightingLife {
		return s.stores
	}
	if j.seen == nil || len(j.seen) >= maxSightings {
		j.seen = map[string]cachedStores{}
	}
	s = cachedStores{ca.JavaStores(files), c.Monotonic()}
	j.seen[key] = s
	return s.stores
}

// bind adds Java's trusted certificates if the root filesystem has Java: a keystore takes longer than all other files.
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
