package ca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/clock"
)

// Store keeps authorities below Cove's home, in one private file each, for sandboxes that outlive the server.
type Store struct{ dir string }

const (
	extension = ".pem"
	maxFile   = 64 << 10 // bytes; a certificate and a key are about 1 KiB
)

// OpenStore uses the directory "ca" below home, which must exist.
func OpenStore(home string) (Store, error) {
	dir := filepath.Join(home, "ca")
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return Store{}, cove.Errorf(cove.StorageFull, "cannot keep certificate authorities: %w", err).
			WithHint("free some space, or choose another directory with --home or COVE_HOME")
	}
	return Store{dir}, nil
}

// path returns an authority's file, and refuses a name that is not a valid id.
func (s Store) path(sandbox cove.SandboxID) (string, error) {
	id, err := cove.ParseSandboxID(string(sandbox))
	return filepath.Join(s.dir, string(id)+extension), err
}

// Save writes the authority durably, for Load after a restart, if its sandbox outlives the server.
func (s Store) Save(a *Authority) error {
	path, err := s.path(a.sandbox)
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return cove.Errorf(cove.Internal, "cannot encode the key of %s: %w", a.sandbox, err)
	}
	file := append(a.Certificate(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	if err := atomicfile.Write(path, file, 0o600); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot keep the certificate authority of %s: %w", a.sandbox, err).
			WithHint("free some space below the home directory")
	}
	return nil
}

// Load reads a saved authority. Errors: NotFound; Corrupt when the file is not Save's for this sandbox, or was readable
// by other users.
func (s Store) Load(sandbox cove.SandboxID, c clock.Clock) (*Authority, error) {
	path, err := s.path(sandbox)
	if err != nil {
		return nil, err
	}
	file, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "%s has no certificate authority", sandbox)
	}
	if err != nil {
		return nil, unusable(sandbox, err)
	}
	pair, err := tls.X509KeyPair(file, file) // it checks that they belong together
	if err != nil {
		return nil, unusable(sandbox, err)
	}
	key, isECDSA := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !isECDSA || !pair.Leaf.IsCA || pair.Leaf.Subject.String() != subject(sandbox).String() {
		return nil, unusable(sandbox, errors.New("it is another's"))
	}
	return assemble(sandbox, c, pair.Certificate[0], key)
}

func unusable(sandbox cove.SandboxID, err error) error {
	return cove.Errorf(cove.Corrupt, "the certificate authority of %s cannot be used: %w", sandbox, err).
		WithHint("start a new sandbox")
}

func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.New("others can read the file, or it is none")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("the file is too large")
	}
	return data, err
}

// Remove deletes the authority of a destroyed sandbox, if it exists, and temporary files of an interrupted Save.
func (s Store) Remove(sandbox cove.SandboxID) error {
	if _, err := s.path(sandbox); err != nil {
		return err
	}
	files, err := s.files()
	for _, f := range files[sandbox] {
		if e := os.Remove(filepath.Join(s.dir, f)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return cove.Errorf(cove.Internal, "cannot remove the certificate authority of %s: %w", sandbox, err)
	}
	return nil
}

// Sandboxes returns, in order, the sandboxes with files, so that the caller can remove those of destroyed ones.
func (s Store) Sandboxes() ([]cove.SandboxID, error) {
	files, err := s.files()
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot list certificate authorities: %w", err)
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// files returns the names in the directory by sandbox: the file of Save, and temporary ones of atomicfile.
func (s Store) files() (map[cove.SandboxID][]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	all := map[cove.SandboxID][]string{}
	for _, e := range entries {
		name, _, found := strings.Cut(strings.TrimPrefix(e.Name(), "."), extension)
		if id, err := cove.ParseSandboxID(name); err == nil && found {
			all[id] = append(all[id], e.Name())
		}
	}
	return all, nil
}
