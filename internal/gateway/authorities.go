package gateway

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/prewarm"
)

// authorities makes the certificate authorities of sandboxes, with the files that make a sandbox trust its own. Only
// the sandbox's id must be known for that, so some are made ahead.
type authorities struct {
	dir    string    // see Options.Dir
	keep   *ca.Store // see Options
	bundle []byte    // roots that sandboxes trust besides
	clock  clock.Clock
	java   java
	pool   *prewarm.Buffer[*trust]
	clean  sync.WaitGroup // removals of files

	mu   sync.Mutex
	next map[cove.SandboxID]*trust // by ids that nextID has returned
}

func newAuthorities(o *Options) *authorities {
	a := &authorities{dir: o.Dir, keep: o.Keep, bundle: o.Bundle, clock: o.Clock, next: map[cove.SandboxID]*trust{}}
	a.java.roots = sync.OnceValue(func() ca.JavaRoots { return ca.NewJavaRoots(o.Bundle) })
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

// of returns the authority of a sandbox: made ahead, stored, or made now. It signs for hosts that allow permits.
func (a *authorities) of(sandbox cove.SandboxID, allow func(policy.Host) error) (t *trust, err error) {
	if t = a.claim(sandbox); t == nil {
		if t, err = a.make(sandbox); err != nil {
			return nil, err
		}
	}
	t.allow.Store(&allow)
	return t, nil
}

// make makes a sandbox's authority and files, or loads the stored authority. On error only the stored authority is
// left.
func (a *authorities) make(sandbox cove.SandboxID) (t *trust, err error) {
	t = &trust{sandbox: sandbox, dir: filepath.Join(a.dir, string(sandbox))}
	if a.keep == nil {
		t.Authority, err = ca.New(sandbox, a.clock, t.maySign)
	} else {
		t.Authority, err = a.stored(sandbox, t.maySign)
	}
	if err == nil {
		err = t.write(a.bundle)
	}
	if err != nil && a.keep == nil {
		t.remove()
	}
	return t, err
}

// makeAhead makes the authority and files of a future sandbox.
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
func (a *authorities) stored(sandbox cove.SandboxID, allow func(policy.Host) error) (*ca.Authority, error) {
	authority, err := a.keep.Load(sandbox, a.clock, allow)
	if cove.ErrorCode(err) != cove.NotFound {
		return authority, err
	}
	if authority, err = ca.New(sandbox, a.clock, allow); err != nil {
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

// remove removes the stored files of a destroyed sandbox.
func (a *authorities) remove(sandbox cove.SandboxID) error {
	os.RemoveAll(filepath.Join(a.dir, string(sandbox)))
	return a.keep.Remove(sandbox)
}

// close removes everything that is not stored.
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
