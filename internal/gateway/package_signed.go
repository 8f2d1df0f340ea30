package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
	"github.com/cove-sandbox/cove/internal/packages/debian"
)

// signedPause is how long a suite whose list could not be read is not asked again through a route: the end of each
// file would wait for it.
const signedPause = time.Minute

// signers hold what the keys of this machine's apt have signed: the lists of suites' indexes, and what those state. All
// routes of a gateway share it, since nothing in it is believed for the one who brought it.
type signers struct {
	ask   func() []packages.Suite
	cache *cache.Cache // which keeps it for other processes
	clock clock.Clock
	log   *slog.Logger
	read  func(body []byte, name string) (*debian.Index, error)

	mu     sync.Mutex
	suites []packages.Suite        // guarded by mu; valid once asked
	asked  bool                    // guarded by mu
	states map[string]*signedSuite // guarded by mu; by the URL of the list
}

// signedSuite holds what is known of a suite. The goroutine that has sent to turn reads and writes the other fields.
type signedSuite struct {
	turn    chan struct{}
	release *debian.Release // the newest list that was verified; nil: none
	checked time.Time       // when it was the list at the suite's URL
	indexes map[string]signedIndex
	paused  map[*decider]time.Time // when a route failed to read the list
}

type signedIndex struct {
	*debian.Index
	sha256 string
}

func newSigners(o *Options) *signers {
	return &signers{ask: o.Suites, cache: o.Packages, clock: o.Clock, log: o.Log, read: debian.ReadIndex,
		states: map[string]*signedSuite{}}
}

// trusted returns the suites of this machine's apt.
func (s *signers) trusted() []packages.Suite {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked && s.ask != nil {
		s.suites = s.ask()
	}
	s.asked = true
	return s.suites
}

// take returns the state of a suite, for its only reader; nil if ctx ends first.
func (s *signers) take(ctx context.Context, of packages.Suite) *signedSuite {
	s.mu.Lock()
	state := s.states[of.Release()]
	if state == nil {
		state = &signedSuite{turn: make(chan struct{}, 1), indexes: map[string]signedIndex{},
			paused: map[*decider]time.Time{}}
		s.states[of.Release()] = state
	}
	s.mu.Unlock()
	select {
	case state.turn <- struct{}{}:
		return state
	case <-ctx.Done():
		return nil
	}
}

func (s *signedSuite) leave() { <-s.turn }

// stated returns the digest that the suites of a file state for it, zero if none does. answered is whether each of them
// could be read.
func (s *signers) stated(ctx context.Context, a *indexAsker, f packages.Signed) (digest packages.Digest,
	answered bool) {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	type answer struct {
		digest packages.Digest
		read   bool
	}
	found := make(chan answer, 1)
	go func() { // a large index takes seconds to unpack; it is read to its end, and the next file finds it
		digest, read := s.search(ctx, a, f)
		found <- answer{digest, read}
	}()
	select {
	case x := <-found:
		return x.digest, x.read
	case <-ctx.Done():
		return packages.Digest{}, false
	}
}

func (s *signers) search(ctx context.Context, a *indexAsker, f packages.Signed) (digest packages.Digest,
	answered bool) {
	answered = true
	for _, of := range f.Suites {
		digest, read := s.statedBy(ctx, a, f, of)
		if digest != (packages.Digest{}) {
			return digest, true
		}
		answered = answered && read
	}
	return packages.Digest{}, answered
}

func (s *signers) statedBy(ctx context.Context, a *indexAsker, f packages.Signed, of packages.Suite) (packages.Digest,
	bool) {
	state := s.take(ctx, of)
	if state == nil {
		return packages.Digest{}, false
	}
	defer state.leave()
	if !s.current(ctx, a, of, state) {
		return packages.Digest{}, false
	}
	if f.Package == "" {
		if state.release.States(f.Dir, f.SHA256) {
			return packages.Digest{SHA256: f.SHA256}, true
		}
		return packages.Digest{}, true
	}
	answered := true
	for _, dir := range f.Indexes(of) {
		index, read := s.index(ctx, a, of, state, dir)
		if sum, ok := index.SHA256(f.Package); ok {
			return packages.Digest{SHA256: sum}, true
		}
		answered = answered && read
	}
	return packages.Digest{}, answered
}

// SHA256 is that of the index; an index that is missing states nothing.
func (i signedIndex) SHA256(path string) (string, bool) {
	if i.Index == nil {
		return "", false
	}
	return i.Index.SHA256(path)
}

var errRolledBack = errors.New("it is older than one that was seen")

// current has the newest list of a suite read and verified, and reports whether there is one that is to be believed.
func (s *signers) current(ctx context.Context, a *indexAsker, of packages.Suite, state *signedSuite) bool {
	now := s.clock.Now()
	if state.release == nil { // another process may have read it
		if note, at, ok := s.cache.Note(of.Release()); ok {
			if r, err := debian.ReadRelease(note, of, now); err == nil {
				state.release, state.checked = r, at
			}
		}
	}
	if state.release != nil && state.release.Current(now) == nil {
		if age := now.Sub(state.checked); age >= 0 && age < packageTrust {
			return true
		}
	}
	if since, paused := state.paused[a.decider]; paused && now.Sub(since) < signedPause {
		return false
	}
	if s.renew(ctx, a, of, state, now) {
		delete(state.paused, a.decider)
		return true
	}
	for of, since := range state.paused { // of routes that may be closed
		if now.Sub(since) >= signedPause {
			delete(state.paused, of)
		}
	}
	state.paused[a.decider] = now
	return false
}

// renew reads the list of a suite, which is not older than the one that is known.
func (s *signers) renew(ctx context.Context, a *indexAsker, of packages.Suite, state *signedSuite, now time.Time) bool {
	body, ok := s.get(ctx, a, of.Release(), debian.MaxRelease)
	if !ok {
		return false
	}
	r, err := debian.ReadRelease(body, of, now)
	if err == nil {
		err = r.Current(now)
	}
	if err == nil && state.release != nil && r.Date.Before(state.release.Date) {
		err = errRolledBack
	}
	if err != nil {
		s.log.Warn("packages of a suite are not cached: its signed list is not believed", "list", of.Release(), "error", err)
		return false
	}
	state.release, state.checked = r, now
	s.cache.SetNote(of.Release(), body)
	return true
}

func (s *signers) get(ctx context.Context, a *indexAsker, at string, most int64) ([]byte, bool) {
	if a.indexes.Acquire(ctx, most) != nil {
		return nil, false
	}
	defer a.indexes.Release(most)
	body, _, ok := a.get(ctx, at, "*/*", most)
	return body, ok
}

// index returns the index of packages in a directory of a suite, which the list states. read is whether it, or that
// there is none, is known.
func (s *signers) index(ctx context.Context, a *indexAsker, of packages.Suite, state *signedSuite, dir string) (
	index signedIndex, read bool) {
	at, sum, size, listed := state.release.Packages(dir)
	if !listed || size > debian.MaxIndex {
		return signedIndex{}, !listed
	}
	if have, ok := state.indexes[dir]; ok && have.sha256 == sum {
		return have, true
	}
	table := "table of " + of.Plain(dir)
	if note, _, ok := s.cache.Note(table); ok {
		if x, ok := debian.ReadTable(note, sum); ok {
			state.indexes[dir] = signedIndex{x, sum}
			return state.indexes[dir], true
		}
	}
	if a.indexes.Acquire(ctx, size) != nil {
		return signedIndex{}, false
	}
	defer a.indexes.Release(size)
	body, ok := s.listed(ctx, a, of, state, at, sum, size)
	if !ok {
		return signedIndex{}, false
	}
	x, err := s.read(body, at)
	if err != nil {
		s.log.Warn("packages of a suite are not cached: an index cannot be read", "list", of.Release(), "index", at,
			"error", err)
		return signedIndex{}, false
	}
	state.indexes[dir] = signedIndex{x, sum}
	s.cache.SetNote(table, x.Table(sum))
	return state.indexes[dir], true
}

// listed returns an index of a suite's list: from the cache, as sandboxes' own apt may have brought it, or its origin.
func (s *signers) listed(ctx context.Context, a *indexAsker, of packages.Suite, state *signedSuite, at, sum string,
	size int64) ([]byte, bool) {
	lasting := of.ByHash(at, sum)
	if stored, ok := s.cache.Open(lasting); ok {
		defer stored.Close()
		if stored.Stated.SHA256 == sum && stored.Size == size {
			body, err := stored.Bytes()
			return body, err == nil
		}
	}
	from := of.Plain(at)
	if state.release.ByHash {
		from = lasting
	}
	body, _, ok := a.get(ctx, from, "*/*", size)
	is := sha256.Sum256(body)
	if !ok || hex.EncodeToString(is[:]) != sum {
		return nil, false
	}
	if w := s.cache.Begin(lasting, size); w != nil {
		_, _ = w.Write(body) // it never fails
		w.Commit(packages.Digest{SHA256: sum})
	}
	return body, true
}
