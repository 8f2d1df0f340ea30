package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a pool of sandboxes in memory.
type bench struct {
	*pool.Pool
	t      *testing.T
	engine *fake.Engine
	clock  *clocktest.Manual
	busy   atomic.Bool // no processor is to spare
}

func newBench(t *testing.T, change ...func(*pool.Options)) *bench {
	b := &bench{t: t, engine: fake.New(fake.Options{}), clock: clocktest.NewManual(time.Unix(0, 0))}
	b.clock.Advance(time.Hour)
	o := pool.Options{Terms: pool.Terms{Most: 3, Age: 5 * time.Minute}, Memory: 1 << 30,
		Spare: func() bool { return !b.busy.Load() }, Clock: b.clock, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, f := range change {
		f(&o)
	}
	b.Pool = pool.New(o)
	t.Cleanup(func() {
		b.Close()
		if left := b.engine.Live(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		b.engine.Close()
	})
	return b
}

const script = cove.WorkDir + "/main.sh"

// recipe is that of a kind, which has its pids limit as a name.
func (b *bench) recipe(kind int, parked bool) pool.Recipe {
	shape := cove.Shape{User: cove.CodeUser, Limits: cove.Limits{PIDs: int64(kind)}}
	r := pool.Recipe{Engine: b.engine, Key: pool.Key{Engine: "fake", Shape: shape},
		Plan: func() provision.Plan { return provision.Plan{Shape: shape} }}
	if parked {
		r.Key.Parked = "sh"
		r.Parked = pool.Parked{Path: script, Spec: guest.ProcessSpec{Args: []string{"sh", script},
			Env: []string{"PATH=/usr/bin:/bin"}, Dir: cove.WorkDir}}
	}
	return r
}

// claim claims a sandbox, which the test has from then on.
func (b *bench) claim(r pool.Recipe) *pool.Prepared {
	b.t.Helper()
	found := b.Claim(b.t.Context(), r)
	b.Wake()
	if found != nil {
		b.t.Cleanup(func() { found.TearDown() })
	}
	return found
}

// settled waits until a kind has n ready.
func (b *bench) settled(kind, n int) {
	b.t.Helper()
	await.That(b.t, fmt.Sprintf("%d ready of kind %d", n, kind), func() bool { return b.of(kind).Ready == n })
}

func (b *bench) of(kind int) pool.Status {
	all, _ := b.Status()
	for _, s := range all {
		if s.Key.Shape.Limits.PIDs == int64(kind) {
			return s
		}
	}
	return pool.Status{}
}

// TestParked: a prepared sandbox runs the program that it is given, and no other is ever given the same.
func TestParked(t *testing.T) {
	b := newBench(t)
	r := b.recipe(1, true)
	if b.claim(r) != nil {
		t.Fatal("something was ready before anything was asked for")
	}
	b.settled(1, 1)
	seen := map[cove.SandboxID]bool{}
	for range 2 {
		p := b.claim(r)
		if p == nil || p.Process == nil || seen[p.ID()] {
			t.Fatalf("%+v", p)
		}
		seen[p.ID()] = true
		if err := guest.Release(t.Context(), p.Guest(), script, 0o644, []byte("exit 7")); err != nil {
			t.Fatal(err)
		}
		p.Process.Copy(nil, nil, nil)
		if o := p.Process.Wait(); o.Code != 7 {
			t.Errorf("%+v", o)
		}
		b.settled(1, 1)
	}
	if s := b.of(1); s.Hits != 2 || s.Misses != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFailed: Claim returns no sandbox that has ended while it waited.
func TestFailed(t *testing.T) {
	b := newBench(t)
	r := b.recipe(1, true)
	b.Warm(r, 2)
	b.settled(1, 2)
	b.busy.Store(true)
	for _, id := range b.engine.Live() {
		if err := b.engine.Sandbox(id).Kill(); err != nil {
			t.Fatal(err)
		}
		<-b.engine.Sandbox(id).Done()
	}
	if p := b.claim(r); p != nil {
		t.Errorf("a dead sandbox: %+v", p)
	}
	await.That(t, "dead sandboxes are destroyed", func() bool { return len(b.engine.Live()) == 0 })
}

// TestSpare: nothing is made while executions need the processors.
func TestSpare(t *testing.T) {
	b := newBench(t)
	b.busy.Store(true)
	b.claim(b.recipe(1, false))
	b.claim(b.recipe(1, false))
	if n := b.engine.Prepared(); n != 0 {
		t.Errorf("%d were made", n)
	}
	b.busy.Store(false)
	b.Wake()
	b.settled(1, 2)
}

// TestAge: the pool replaces an old sandbox, and drops a kind that is not asked for.
func TestAge(t *testing.T) {
	b := newBench(t)
	b.busy.Store(true)
	b.claim(b.recipe(1, false))
	b.claim(b.recipe(1, false))
	b.busy.Store(false)
	b.Wake()
	b.settled(1, 2)
	first := b.engine.Live()
	pass := func(d time.Duration) {
		for range int(d / (15 * time.Second)) {
			b.clock.BlockUntil(1)
			b.clock.Advance(15 * time.Second)
		}
	}
	pass(6 * time.Minute)
	await.That(t, "another one", func() bool {
		now := b.engine.Live()
		return len(now) == 1 && now[0] != first[0] && now[0] != first[1]
	})
	pass(5 * time.Minute)
	await.That(t, "none", func() bool { return len(b.engine.Live()) == 0 && b.of(1).Key.Engine == "" })
}

// TestMemory: beyond the budget, the kind goes first that was asked for least recently.
func TestMemory(t *testing.T) {
	const each = 4 << 20 // of the engine's sandboxes
	b := newBench(t, func(o *pool.Options) { o.Memory = 3 * each })
	for kind := range 2 {
		b.busy.Store(true)
		b.claim(b.recipe(1+kind, false))
		b.claim(b.recipe(1+kind, false))
		b.busy.Store(false)
		b.Wake()
		b.settled(1+kind, 2)
		b.clock.Advance(time.Second)
	}
	b.clock.BlockUntil(1)
	b.clock.Advance(15 * time.Second)
	await.That(t, "within the budget", func() bool { return b.of(1).Ready == 1 && b.of(2).Ready == 2 })
	if s := b.of(2); s.Memory != 2*each {
		t.Errorf("%+v", s)
	}
}

// TestFailure: a kind of which none can be made is left alone for a while.
func TestFailure(t *testing.T) {
	b := newBench(t)
	b.engine.Inject(fake.Faults{Bind: errors.New("no")})
	b.claim(b.recipe(1, false))
	await.That(t, "a failure", func() bool { return b.of(1).Failures == 1 })
	b.engine.Inject(fake.Faults{})
	b.Wake()
	b.claim(b.recipe(2, false))
	b.settled(2, 1)
	if s := b.of(1); s.Ready != 0 || s.Failures != 1 {
		t.Errorf("tried again at once: %+v", s)
	}
	b.clock.Advance(time.Minute)
	b.Wake()
	await.That(t, "tried again", func() bool { return b.of(1).Ready > 0 })
}

// TestWait: a caller waits for the one that is being made, and the others do not.
func TestWait(t *testing.T) {
	b := newBench(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := b.recipe(1, false)
	plan := r.Plan
	r.Plan = func() provision.Plan {
		select {
		case begun <- struct{}{}:
			<-goOn
		case <-goOn:
		}
		return plan()
	}
	b.claim(r)
	<-begun
	found := make(chan *pool.Prepared)
	for range 2 {
		go func() { found <- b.Claim(context.Background(), r) }()
	}
	if p := <-found; p != nil {
		t.Errorf("before one is made: %v", p)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if p := b.Claim(ended, r); p != nil {
		t.Errorf("after its end: %v", p)
	}
	close(goOn)
	if p := <-found; p == nil {
		t.Error("neither request has waited")
	} else if err := p.TearDown(); err != nil {
		t.Error(err)
	}
}

// TestDrain: what is warm is kept whatever is asked for, until it is drained.
func TestDrain(t *testing.T) {
	b := newBench(t)
	b.Warm(b.recipe(1, true), 2)
	b.settled(1, 2)
	b.clock.BlockUntil(1)
	b.clock.Advance(time.Minute)
	if s := b.of(1); s.Ready != 2 {
		t.Errorf("%+v", s)
	}
	if err := b.Drain(t.Context()); err != nil || len(b.engine.Live()) != 0 {
		t.Errorf("%v, and there are %v", err, b.engine.Live())
	}
	if all, _ := b.Status(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	off := newBench(t, func(o *pool.Options) { o.Terms.Most = 0 })
	off.claim(off.recipe(1, false))
	if all, _ := off.Status(); len(all) != 0 {
		t.Errorf("without a size: %+v", all)
	}
}

// TestExhausted: the pool warns, once in a while, that it may not keep as many as are asked for, unless no processor
// would be free for more.
func TestExhausted(t *testing.T) {
	var log bytes.Buffer
	b := newBench(t, func(o *pool.Options) {
		o.Terms.Most, o.Log = 1, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	warnings := func() int { return strings.Count(log.String(), "too few prepared sandboxes") }
	b.busy.Store(true)
	for range 3 {
		b.claim(b.recipe(1, false))
	}
	if n := warnings(); n != 0 {
		t.Errorf("without a free processor: %d", n)
	}
	b.busy.Store(false)
	b.engine.Inject(fake.Faults{Bind: errors.New("no")})
	for range 3 {
		b.Claim(t.Context(), b.recipe(1, false))
	}
	b.clock.Advance(time.Hour)
	for range 3 {
		b.Claim(t.Context(), b.recipe(1, false))
	}
	b.Close()
	if n := warnings(); n != 2 {
		t.Errorf("%d warnings in two hours:\n%s", n, log.String())
	}
}

// TestTerms: an engine and a kind can have terms of their own. More are prepared when fewer than the threshold are
// ready, and then as many as are kept.
func TestTerms(t *testing.T) {
	own := pool.Terms{Least: 4, Most: 6, Refill: 2, Age: time.Minute}
	b := newBench(t, func(o *pool.Options) {
		o.Engines = map[string]pool.Terms{"fake": {Usual: 3, Most: 5, Refill: 1, Age: time.Hour}}
	})
	b.claim(b.recipe(1, false))
	b.settled(1, 3)
	if s := b.of(1); s.Size != 3 || s.Terms.Most != 5 || s.Terms.Refill != 1 {
		t.Errorf("as the engine: %+v", s)
	}
	r := b.recipe(2, true)
	b.Configure(r, own)
	b.settled(2, 4)
	if s := b.of(2); s.Size != 4 || s.Terms != own {
		t.Errorf("terms of its own: %+v", s)
	}
	made := b.engine.Prepared()
	for left := 3; left >= 2; left-- {
		if b.claim(r) == nil {
			t.Error("none is ready")
		}
		b.claim(b.recipe(10+left, false))
		b.settled(10+left, 3) // the pool has looked for what it lacks since
		if s := b.of(2); s.Ready != left {
			t.Errorf("above the threshold: %+v", s)
		}
		made = b.engine.Prepared()
	}
	if b.claim(r) == nil {
		t.Error("none is ready")
	}
	b.settled(2, 4)
	if n := b.engine.Prepared() - made; n != 3 {
		t.Errorf("%d were made, want 3", n)
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if b.claim(r); b.of(2).Terms.Most != 6 || b.of(2).Terms.Least != 0 {
		t.Errorf("after a drain: %+v", b.of(2))
	}
	off := newBench(t, func(o *pool.Options) { o.Terms.Most = 0 })
	off.Configure(off.recipe(1, false), own)
	if off.claim(off.recipe(1, false)); off.engine.Prepared() != 0 || off.Terms(off.recipe(1, false).Key).Most != 0 {
		t.Error("a kind with terms of its own has sandboxes, where there is no pool")
	}
}

// TestWarmStays: among many kinds, those give way first of which nothing is kept whatever is asked for.
func TestWarmStays(t *testing.T) {
	b := newBench(t)
	b.Warm(b.recipe(1, false), 1)
	b.settled(1, 1)
	b.busy.Store(true)
	for kind := range 100 {
		b.clock.Advance(time.Millisecond)
		b.claim(b.recipe(2+kind, false))
	}
	if s := b.of(1); s.Ready != 1 {
		t.Errorf("it gave way: %+v", s)
	}
}
