package gateway

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// Paths of the trusted certificates inside a sandbox.
const (
	bundlePlace      = "/etc/cove/ca-certificates.crt"
	certificatePlace = "/etc/cove/ca.pem"
)

// keystoreName is the name of Java's keystore beside them.
const keystoreName = "cacerts"

// trust is an authority, and a directory with the files that make one sandbox trust it. Only the sandbox's id must be
// known, so it can be made ahead.
type trust struct {
	*ca.Authority
	sandbox  cove.SandboxID
	dir      string
	keystore bool                // the keystore exists
	way      atomic.Pointer[Way] // of the sandbox; nil until it is opened
}

// Next returns the id for a sandbox that is about to get a route. Its authority may have been made ahead, and no other
// sandbox uses it, so the caller must open the route.
func (g *Gateway) Next() cove.SandboxID {
	t, ok := g.ahead.Take()
	if !ok {
		return cove.NewSandboxID()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next[t.sandbox] = t
	return t.sandbox
}

// claim returns, once, the authority made ahead for a sandbox; nil if there is none.
func (g *Gateway) claim(sandbox cove.SandboxID) *trust {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.next[sandbox]
	delete(g.next, sandbox)
	return t
}

// trust returns the authority of w: made ahead, stored, or made now.
func (g *Gateway) trust(w *Way) (t *trust, err error) {
	if t = g.claim(w.sandbox); t == nil {
		if t, err = g.newTrust(w.sandbox); err != nil {
			return nil, err
		}
	}
	t.way.Store(w)
	return t, nil
}

// newTrust makes a sandbox's authority and files, or loads the stored authority. On error only the stored authority is
// left.
func (g *Gateway) newTrust(sandbox cove.SandboxID) (t *trust, err error) {
	t = &trust{sandbox: sandbox, dir: filepath.Join(g.o.Dir, string(sandbox))}
	if g.o.Keep == nil {
		t.Authority, err = ca.New(sandbox, g.o.Clock, t.maySign)
	} else {
		t.Authority, err = g.kept(sandbox, t.maySign)
	}
	if err == nil {
		err = t.write(g.o.Bundle)
	}
	if err != nil && g.o.Keep == nil {
		t.remove()
	}
	return t, err
}

// makeAhead makes the authority and files of a future sandbox.
func (g *Gateway) makeAhead(context.Context) (*trust, error) {
	t, err := g.newTrust(cove.NewSandboxID())
	if err == nil && g.java.wanted.Load() {
		if err = t.writeKeystore(&g.java); err != nil {
			t.remove()
		}
	}
	return t, err
}

// kept returns a sandbox's stored authority, or a new one that it stores.
func (g *Gateway) kept(sandbox cove.SandboxID, allow func(policy.Host) error) (*ca.Authority, error) {
	a, err := g.o.Keep.Load(sandbox, g.o.Clock, allow)
	if cove.ErrorCode(err) != cove.NotFound {
		return a, err
	}
	if a, err = ca.New(sandbox, g.o.Clock, allow); err != nil {
		return nil, err
	}
	return a, g.o.Keep.Save(a)
}

// maySign permits leaves for hosts that the sandbox may connect to, at some port.
func (t *trust) maySign(h policy.Host) error {
	w := t.way.Load()
	if w == nil {
		return cove.Errorf(cove.Forbidden, "sandbox %s has no way out", t.sandbox)
	}
	return w.maySign(h)
}

// write writes the files that every sandbox is shown.
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
		err = write(t.file(bundlePlace), t.Bundle(roots), 0o644)
	}
	if err == nil {
		err = write(t.file(certificatePlace), t.Certificate(), 0o644)
	}
	return t.unwritten(err)
}

// writeKeystore writes Java's keystore, if it does not exist yet.
func (t *trust) writeKeystore(j *java) error {
	if t.keystore {
		return nil
	}
	keystore, err := t.JavaKeystore(j.roots())
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
	bundles := []engine.File{{Target: bundlePlace}}
	for _, place := range ca.SystemBundles {
		bundles = append(bundles, engine.File{Target: place, Existing: true})
	}
	if err := b.Show(t.own(bundlePlace), bundles...); err != nil {
		return err
	}
	return b.Show(t.own(certificatePlace), engine.File{Target: certificatePlace})
}
