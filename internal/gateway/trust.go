package gateway

import (
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

// trust is an authority, and a directory with the files that make one sandbox trust it.
type trust struct {
	*ca.Authority
	sandbox  cove.SandboxID
	dir      string
	keystore bool                                    // the keystore exists
	allow    atomic.Pointer[func(policy.Host) error] // of the sandbox's route; nil until it is opened
}

// maySign permits leaves for hosts that the sandbox may connect to, at some port.
func (t *trust) maySign(h policy.Host) error {
	allow := t.allow.Load()
	if allow == nil {
		return cove.Errorf(cove.Forbidden, "sandbox %s has no egress route", t.sandbox)
	}
	return (*allow)(h)
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
	bundles := []engine.File{{Target: bundlePlace}}
	for _, place := range ca.SystemBundles {
		bundles = append(bundles, engine.File{Target: place, Existing: true})
	}
	if err := b.Show(t.own(bundlePlace), bundles...); err != nil {
		return err
	}
	return b.Show(t.own(certificatePlace), engine.File{Target: certificatePlace})
}
