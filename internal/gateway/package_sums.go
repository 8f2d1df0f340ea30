package gateway

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb"

	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

const (
	maxSumsAnswer = 1 << 20  // bytes of an answer of the checksum database
	maxSumsHeld   = 16 << 20 // bytes of answers that are held; beyond it all are forgotten
)

// goSums asks the checksum database of this machine's go, and holds what was verified: all routes of a gateway share
// it, since each record is proven to be in the tree that the database's key has signed, and each tree to continue the
// one before.
type goSums struct {
	ask   func() packages.Sums
	cache *cache.Cache // which keeps the newest tree for other processes
	log   *slog.Logger

	mu     sync.Mutex
	sums   packages.Sums     // guarded by mu; valid once asked
	asked  bool              // guarded by mu
	held   map[string][]byte // guarded by mu; answers by name
	bytes  int               // guarded by mu; of held
	latest []byte            // guarded by mu; the newest signed tree; nil: it has not been read
}

func newGoSums(o *Options) *goSums {
	return &goSums{ask: o.Sums, cache: o.Packages, log: o.Log, held: map[string][]byte{}}
}

// database returns the machine's database; the zero one if there is none.
func (s *goSums) database() packages.Sums {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked && s.ask != nil {
		s.sums = s.ask()
	}
	s.asked = true
	return s.sums
}

// stated returns the digest that the database states for a file, zero if it states none. answered is whether it was
// asked with success.
func (s *goSums) stated(ctx context.Context, a *indexAsker, m packages.Module) (digest packages.Digest, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	for _, at := range m.Sums {
		ops := &sumsOps{goSums: s, at: at, remote: func(path string) ([]byte, error) { return remote(ctx, a, at+path) }}
		if strings.HasSuffix(at, "/sumdb/"+s.database().Name) { // the proxy says whether it has it
			if _, err := ops.ReadRemote("/supported"); err != nil {
				continue
			}
		}
		lines, err := sumdb.NewClient(ops).Lookup(m.Path, m.Lookup())
		if err != nil {
			return packages.Digest{}, false
		}
		for _, line := range lines {
			if digest, ok := m.Digest(line); ok {
				return digest, true
			}
		}
		return packages.Digest{}, true
	}
	return packages.Digest{}, false
}

// sumsOps is the world of one question to the database.
type sumsOps struct {
	*goSums
	at     string
	remote func(path string) ([]byte, error)
}

var errNoAnswer = errors.New("the checksum database does not answer")

// ReadRemote implements sumdb.ClientOps.
func (s *sumsOps) ReadRemote(path string) ([]byte, error) { return s.remote(path) }

func remote(ctx context.Context, a *indexAsker, at string) ([]byte, error) {
	if err := a.indexes.Acquire(ctx, maxSumsAnswer); err != nil {
		return nil, err
	}
	defer a.indexes.Release(maxSumsAnswer)
	body, _, ok := a.get(ctx, at, "*/*", maxSumsAnswer)
	if !ok {
		return nil, errNoAnswer
	}
	return body, nil
}

// ReadConfig implements sumdb.ClientOps.
func (s *sumsOps) ReadConfig(file string) ([]byte, error) {
	database := s.database()
	if file == "key" {
		return []byte(database.Key), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil {
		s.latest, _, _ = s.cache.Note(noteOf(database))
	}
	return bytes.Clone(s.latest), nil
}

func noteOf(d packages.Sums) string { return "tree of " + d.Key }

// WriteConfig implements sumdb.ClientOps.
func (s *sumsOps) WriteConfig(_ string, old, latest []byte) error {
	database := s.database()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(old, s.latest) {
		return sumdb.ErrWriteConflict
	}
	s.latest = bytes.Clone(latest)
	s.cache.SetNote(noteOf(database), latest)
	return nil
}

// ReadCache implements sumdb.ClientOps.
func (s *sumsOps) ReadCache(file string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.held[file]
	if !ok {
		return nil, errNoAnswer
	}
	return data, nil
}

// WriteCache implements sumdb.ClientOps.
func (s *sumsOps) WriteCache(file string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes += len(data) + len(file); s.bytes > maxSumsHeld {
		s.held, s.bytes = map[string][]byte{}, len(data)+len(file)
	}
	s.held[file] = data
}

// Log implements sumdb.ClientOps.
func (s *sumsOps) Log(string) {}

// SecurityError implements sumdb.ClientOps.
func (s *sumsOps) SecurityError(message string) {
	s.log.Warn("Go modules are not cached: the checksum database contradicts itself", "database", s.at, "error", message)
}
