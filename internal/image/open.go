package image

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// Open returns the store of a directory, which need not exist, and removes the remains of crashes.
func Open(o Options) (*Store, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, cove.Errorf(cove.InvalidArgument, "%q is no directory for images", o.Dir)
	}
	s := &Store{dir: dir, checkPath: o.CheckPath, limits: o.Limits, home: cmp.Or(o.Home, dir), most: o.Most,
		files: o.Files, log: o.Log, keychain: authn.DefaultKeychain,
		patience: defaultPatience, known: map[string]*Image{}, sizes: map[string]sized{}}
	if s.checkPath == nil {
		s.checkPath = filepath.EvalSymlinks
	}
	if s.limits == (unpack.Limits{}) {
		s.limits = unpack.DefaultLimits()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if _, _, err := s.sweep(); err != nil {
		s.log.Warn("image store not swept", "dir", dir, "err", err)
	}
	return s, nil
}

// sweepIndex removes half-written indexes of a crash.
func (s *Store) sweepIndex() error {
	written := filepath.Join(s.dir, ".index.json.*")
	if left, err := filepath.Glob(written); err != nil || len(left) == 0 {
		return err
	}
	lock, err := filelock.Open(filepath.Join(s.dir, "index.lock"), filelock.Exclusive)
	if err == filelock.ErrHeld {
		return nil // another process is writing one
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	left, err := filepath.Glob(written) // one that was there before may have been in use
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// sweep removes temporary directories of dead owners, and half-written indexes. It returns their count and their bytes.
func (s *Store) sweep() (count int, bytes int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, 0, err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), lockSuffix)
		if seen[name] {
			continue
		}
		seen[name] = true
		dir := filepath.Join(s.dir, "tmp", name)
		lock, e := filelock.Open(dir+lockSuffix, filelock.Exclusive)
		if e == filelock.ErrHeld {
			continue
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		bytes += diskUsage(s.files, dir)
		count++
		err = errors.Join(err, (&temp{dir: dir, lock: lock, files: s.files}).discard())
	}
	return count, bytes, errors.Join(err, s.sweepIndex())
}
