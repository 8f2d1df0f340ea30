// Package pool keeps sandboxes prepared for programs that are likely to be asked for: made, bound, and where an
// interpreter has a parked form, with it started and waiting for its code. Each serves one caller, and is destroyed
// after that.
//
// Nothing of a caller is in a prepared sandbox, and nothing of a user's has run in it. What shapes it is its [Key]: a
// request for which something else would have to be in its sandbox has another key, or is not served from a pool.
//
// One goroutine makes what is missing, one sandbox after the other, while the machine has processors to spare. How many
// of a key are kept follows from what is asked for, within a budget of memory.
package pool

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Key is all that shapes a prepared sandbox.
type Key struct {
	Engine string
	Rootfs engine.RootfsKind
	Image  string          // its digest; empty for the host's root filesystem
	Tree   engine.Identity // of an unpacked image, which may be removed and come back
	Shape  cove.Shape
	Parked string // the runtime whose interpreter is parked in it; empty for none
}

// Recipe says how sandboxes of a key are made.
type Recipe struct {
	Key    Key
	Engine engine.Engine
	// Plan returns the plan of another one, whose network is none.
	Plan   func() provision.Plan
	Parked Parked // where Key.Parked is not empty
}

// Parked is a program to park: it reads its code at Path.
type Parked struct {
	Path string
	Spec guest.ProcessSpec
	// Trial is code that ends with 0, of a program that can also be made from a zygote; nil: it is always started.
	Trial []byte
	// Preload has the program of which a zygote is made load modules; nil: there are none to load.
	Preload *Preload
}

// Preload has a program load modules when it starts.
type Preload struct {
	Place []string // a command that prints where the program finds Text
	Text  []byte   // of a file, which the program removes
	Check []byte   // a Trial that says what is not loaded
}

// Prepared is a sandbox for one caller, who tears it down.
type Prepared struct {
	*provision.Sandbox
	Process *process.Process // that is parked; nil for none

	born   clock.Instant
	sparse bool         // by engine.Copy.Sparse
	memory atomic.Int64 // bytes that it has, as measured last
}

// Terms say how many sandboxes of a key are kept.
type Terms struct {
	Least  int           // whatever is asked for
	Usual  int           // while some are asked for; 0: one
	Most   int           // 0: the key has none
	Refill int           // others are made when fewer are ready; 0: when one is missing
	Age    time.Duration // a prepared sandbox is replaced when it is older
	// Setting is the setting that Most comes from, for messages.
	Setting string
}

// Options make a Pool. All are required but Engines and Spare.
type Options struct {
	Terms   Terms            // of keys without others; Most 0: there is no pool
	Engines map[string]Terms // of the keys of an engine, by its name
	Memory  int64            // bytes of memory that all may have together
	// Zygotes says that programs which can be are made from zygotes.
	Zygotes bool
	// Spare reports whether the machine has a processor to spare; nil: always.
	Spare func() bool
	Clock clock.Clock
	Log   *slog.Logger
}

// Pool keeps sandboxes prepared. Its methods may be called concurrently.
type Pool struct {
	o      Options
	wake   chan struct{}
	cancel context.CancelFunc
	filler sync.WaitGroup
	clean  destructions
	maker  *maker

	mu     sync.Mutex
	terms  map[Key]Terms // that Configure has set
	kinds  map[Key]*kind
	making *preparation // of any kind, also of one that was forgotten; nil: none
	totals Totals
	warned clock.Instant // of exhaustion, last
	closed bool
}

// kind holds all that the pool has of one key. Pool.mu guards it.
type kind struct {
	recipe  Recipe
	terms   Terms
	demand  demand
	refills bool          // fewer than Terms.Refill were ready, and the size is not reached yet
	ready   []*Prepared   // the oldest first
	making  *preparation  // nil: none is made
	awaited bool          // a request waits for that one
	pause   clock.Instant // after a failure: none is made before
	counts  Counts
	zygotes zygotes
}

// preparation is the making of one sandbox.
type preparation struct {
	stop context.CancelFunc
	done chan struct{} // closed when the sandbox is ready, or cannot be made
}

// Counts count what became of requests.
type Counts struct {
	Hits     int64 `json:"hits"`
	Misses   int64 `json:"misses"`
	Failures int64 `json:"failures"` // to make one
}

// Totals are Counts of all keys since the pool was made, and how long callers have waited in Claim.
type Totals struct {
	Counts
	Waited time.Duration
}

// Status is the state of a key.
type Status struct {
	Key    Key
	Terms  Terms // with the least that Warm has asked for
	Size   int   // sandboxes to keep
	Ready  int
	Memory int64 // bytes that those have
	Counts
}

const (
	// mostKinds bounds the keys, of which the one that was asked for least recently gives way.
	mostKinds = 64
	// look is how often the age and the memory of what is ready are judged.
	look = 15 * time.Second
	// afterFailure is how long a key is left alone of which no sandbox could be made.
	afterFailure = 10 * time.Second
)

// New returns a Pool, which is empty until something is asked for.
func New(o Options) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{o: o, wake: make(chan struct{}, 1), cancel: cancel, terms: map[Key]Terms{},
		kinds: map[Key]*kind{}}
	p.maker = &maker{o: o, discard: p.discard}
	p.filler.Go(func() { p.run(ctx) })
	return p
}

// Claim returns a prepared sandbox, or nil where none is ready. One that is being made is waited for, by one caller: it
// is there sooner than another one would be. What was claimed is made up for after the next Wake, so that the caller
// can begin before that takes processors.
func (p *Pool) Claim(ctx context.Context, r Recipe) *Prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.termsOf(r.Key).Most == 0 {
		return nil
	}
	asked := p.o.Clock.Monotonic()
	defer func() { p.totals.Waited += p.o.Clock.Since(asked) }()
	k := p.kind(r)
	found := p.take(k)
	if making := k.making; found == nil && making != nil && !k.awaited {
		k.awaited = true
		p.mu.Unlock()
		select {
		case <-making.done:
		case <-ctx.Done():
		}
		p.mu.Lock()
		k.awaited = false
		found = p.take(k)
	}
	if found == nil && k.demand.size() >= k.terms.Most {
		p.exhausted(r.Key, k.terms)
	}
	k.demand = k.demand.after(p.o.Clock.Monotonic(), found != nil, k.terms.Most)
	for _, c := range []*Counts{&k.counts, &p.totals.Counts} {
		if found == nil {
			c.Misses++
		} else {
			c.Hits++
		}
	}
	return found
}

// exhausted warns that more sandboxes of a key are asked for than the pool may keep, although the machine has
// processors for more. It does so once in a while.
func (p *Pool) exhausted(key Key, t Terms) {
	now := p.o.Clock.Monotonic()
	if p.o.Spare != nil && !p.o.Spare() || p.warned != 0 && now.Sub(p.warned) < lapse {
		return
	}
	p.warned = now
	p.o.Log.Warn("the pool has too few prepared sandboxes; the setting may be higher", "setting", t.Setting,
		"size", t.Most, "engine", key.Engine, "parked", key.Parked, "misses", p.totals.Misses+1)
}

// kind finds what the pool has of a recipe's key. The latest recipe is the one to make others by.
func (p *Pool) kind(r Recipe) *kind {
	k := p.kinds[r.Key]
	if k == nil {
		if len(p.kinds) >= mostKinds {
			p.forget(p.least())
		}
		terms := p.termsOf(r.Key)
		k = &kind{terms: terms, demand: demand{usual: terms.Usual}}
		p.kinds[r.Key] = k
	}
	k.recipe = r
	return k
}

// least is the key that was asked for least recently, of those first that nothing is kept of whatever is asked for.
func (p *Pool) least() Key {
	return slices.MinFunc(slices.Collect(maps.Keys(p.kinds)), func(a, b Key) int {
		one, other := p.kinds[a].demand, p.kinds[b].demand
		return cmp.Or(cmp.Compare(min(one.least, 1), min(other.least, 1)), cmp.Compare(one.asked, other.asked))
	})
}

func (p *Pool) forget(key Key) {
	k := p.kinds[key]
	p.discard(k.ready...)
	k.ready = nil // who has waited in Claim looks here
	if k.making != nil {
		k.making.stop()
	}
	delete(p.kinds, key)
}

// whole counts those that are ready and not sparse.
func (k *kind) whole() (n int) {
	for _, one := range k.ready {
		if !one.sparse {
			n++
		}
	}
	return n
}

// first is the place of the oldest, of those that are not sparse if there is one.
func (k *kind) first() int {
	return max(0, slices.IndexFunc(k.ready, func(one *Prepared) bool { return !one.sparse }))
}

// take removes and returns the first that still waits.
func (p *Pool) take(k *kind) *Prepared {
	for len(k.ready) > 0 {
		at := k.first()
		first := k.ready[at]
		k.ready = slices.Delete(k.ready, at, at+1)
		if !first.Failed() {
			return first
		}
		p.discard(first)
	}
	return nil
}

// Failed reports whether the sandbox or its parked program has ended by itself. A nil Prepared has not.
func (p *Prepared) Failed() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		return true
	default:
		return p.Process != nil && p.Process.Ended()
	}
}

// termsOf returns the terms of a key. The caller has the lock.
func (p *Pool) termsOf(key Key) Terms {
	t := p.o.Terms
	if t.Most > 0 {
		if of, ok := p.o.Engines[key.Engine]; ok {
			t = of
		}
		if of, ok := p.terms[key]; ok {
			t = of
		}
	}
	return t
}

// Terms returns the terms of a key.
func (p *Pool) Terms(key Key) Terms {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.termsOf(key)
}

// Configure gives a recipe's key terms of its own, for the life of the pool, and warms it.
func (p *Pool) Configure(r Recipe, t Terms) {
	p.mu.Lock()
	p.terms[r.Key] = t
	if k := p.kinds[r.Key]; k != nil {
		k.terms, k.demand.usual = t, t.Usual
	}
	p.mu.Unlock()
	p.Warm(r, t.Least)
}

// Warm keeps at least n sandboxes of a recipe's key ready, whatever is asked for.
func (p *Pool) Warm(r Recipe, n int) {
	p.mu.Lock()
	if !p.closed {
		k := p.kind(r)
		k.demand.least = min(n, k.terms.Most)
	}
	p.mu.Unlock()
	p.Wake()
}

// Wake has the pool look for what it lacks: a processor may have become free.
func (p *Pool) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close destroys what is ready, and returns when it is gone.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.filler.Wait()
	p.forgetAll()
	p.clean.group.Wait()
}

// Status describes the keys, those first that were asked for last, and all together.
func (p *Pool) Status() ([]Status, Totals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(p.kinds), func(a, b Key) int {
		return cmp.Compare(p.kinds[b].demand.asked, p.kinds[a].demand.asked)
	})
	all := make([]Status, 0, len(keys))
	for _, key := range keys {
		k := p.kinds[key]
		s := Status{Key: key, Terms: k.terms, Size: k.demand.at(p.o.Clock.Monotonic()).size(), Ready: len(k.ready),
			Memory: memory(k.ready), Counts: k.counts}
		s.Terms.Least = k.demand.least
		all = append(all, s)
	}
	return all, p.totals
}

// memory adds up what prepared sandboxes have, in bytes.
func memory(all []*Prepared) (sum int64) {
	for _, one := range all {
		sum += one.memory.Load()
	}
	return sum
}

// measure reads the memory of all that is ready: what has been parked may have grown since it was started.
func (p *Pool) measure(ctx context.Context) {
	p.mu.Lock()
	var all []*Prepared
	for _, k := range p.kinds {
		all = append(all, k.ready...)
	}
	p.mu.Unlock()
	for _, one := range all {
		one.measure(ctx)
	}
}

func (p *Prepared) measure(ctx context.Context) {
	if stats, err := p.Stats(ctx); err == nil {
		p.memory.Store(stats.MemoryPeak)
	}
}

// run makes what is missing, until the context ends.
func (p *Pool) run(ctx context.Context) {
	timer := p.o.Clock.NewTimer(look)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C: // either: the next round has the other
			timer.Reset(look)
			p.measure(ctx)
			p.trim()
		}
		for ctx.Err() == nil && p.fill(ctx) {
		}
	}
}

// fill makes one sandbox that is missing, and reports whether one was.
func (p *Pool) fill(ctx context.Context) bool {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k := p.next(stop, p.o.Spare == nil || p.o.Spare())
	if k != nil {
		p.add(ctx, k)
	}
	return k != nil
}

// trim destroys what is too old, more than is wanted, or more than the budget of memory has room for.
func (p *Pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Clock.Monotonic()
	for key, k := range p.kinds {
		k.demand = k.demand.at(now)
		for len(k.ready) > 0 && (len(k.ready) > k.demand.size() || now.Sub(k.ready[0].born) >= k.terms.Age) {
			p.discard(k.ready[0])
			k.ready = k.ready[1:]
		}
		if k.demand.size() == 0 && k.making == nil {
			delete(p.kinds, key)
		}
	}
	p.fit()
}

// fit keeps the budget of memory: the key that was asked for least recently loses one after the other.
func (p *Pool) fit() {
	var sum int64
	for _, k := range p.kinds {
		sum += memory(k.ready)
	}
	for sum > p.o.Memory {
		var victim *kind
		for _, k := range p.kinds {
			if len(k.ready) > 0 && (victim == nil || k.demand.asked < victim.demand.asked) {
				victim = k
			}
		}
		if victim == nil {
			return
		}
		sum -= memory(victim.ready[:1])
		p.discard(victim.ready[0])
		victim.ready = victim.ready[1:]
		victim.demand.want = min(victim.demand.want, len(victim.ready))
		victim.demand.least = min(victim.demand.least, len(victim.ready))
	}
}

// next is the kind that lacks a sandbox, the one first that was asked for last; nil for none. It is marked as being
// made. Without a processor to spare, a kind whose zygote would spare requests more is all that lacks one.
func (p *Pool) next(stop context.CancelFunc, spare bool) (lacks *kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Clock.Monotonic()
	for _, k := range p.kinds {
		if k.lacks(now) && k.pause <= now &&
			(spare || p.maker.breeds(k.recipe) && k.zygotes.lacking()) &&
			(lacks == nil || k.demand.asked > lacks.demand.asked) {
			lacks = k
		}
	}
	if lacks != nil {
		p.making = &preparation{stop: stop, done: make(chan struct{})}
		lacks.making = p.making
	}
	return lacks
}

// lacks reports whether a sandbox is to be made: below the threshold one is, and then until the size is reached.
func (k *kind) lacks(now clock.Instant) bool {
	size := k.demand.at(now).size()
	k.refills = len(k.ready) < size && (k.refills || k.terms.Refill == 0 || len(k.ready) < k.terms.Refill)
	return k.refills
}

// add makes a sandbox of a kind.
func (p *Pool) add(ctx context.Context, k *kind) {
	p.mu.Lock()
	recipe, sparse := k.recipe, k.whole() >= mostWhole
	p.mu.Unlock()
	made, err := p.maker.prepare(ctx, recipe, &k.zygotes, sparse)
	if err == nil {
		made.measure(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(k.making.done)
	p.making, k.making = nil, nil
	forgotten := p.closed || p.kinds[recipe.Key] != k
	switch {
	case forgotten && err == nil:
		p.discard(made)
	case forgotten:
	case err != nil:
		p.o.Log.Warn("a sandbox cannot be prepared", "engine", recipe.Key.Engine, "parked", recipe.Key.Parked, "error", err)
		k.counts.Failures++
		p.totals.Failures++
		k.pause = p.o.Clock.Monotonic().Add(afterFailure)
	default:
		k.ready = append(k.ready, made)
	}
}
