package execution_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/execution"
)

// TestHealth: an engine in use is tried, at a bounded cost and for a bounded time, and one that was never used is not.
func TestHealth(t *testing.T) {
	manual := clocktest.NewManual(time.Now())
	caps := fake.New(fake.Options{}).Capabilities()
	caps.OwnImages = false // as of the native engine; one with images has a daemon, which is asked instead
	eng := fake.New(fake.Options{Capabilities: &caps})
	h := newHouse(t, untilKilled, func(o *execution.Options) {
		o.Clock = manual
		o.Engines = engine.NewSet("fake", engine.Source{Name: "fake",
			Open: func() (engine.Engine, error) { return eng, nil }})
	})
	if got := h.Health(t.Context())["fake"]; got != "not used yet" || eng.Prepared() > 0 {
		t.Errorf("before its use: %q, after %d sandboxes", got, eng.Prepared())
	}
	if err := h.Open(); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if got := h.Health(t.Context())["fake"]; got != "ok" {
				t.Errorf("a good engine: %q", got)
			}
		})
	}
	asking.Wait()
	if made := eng.Prepared(); made != 1 {
		t.Errorf("%d sandboxes were made", made)
	}

	eng.Inject(fake.Faults{Prepare: errors.New("no cgroups are left")})
	if got := h.Health(t.Context())["fake"]; got != "ok" {
		t.Errorf("it was tried again at once: %q", got)
	}
	manual.Advance(11 * time.Second)
	if got := h.Health(t.Context())["fake"]; !strings.Contains(got, "no cgroups are left") {
		t.Errorf("an engine that fails: %q", got)
	}

	eng.Inject(fake.Faults{PrepareDelay: time.Second}) // of the real clock: longer than the wait below
	manual.Advance(11 * time.Second)
	hung := make(chan string)
	go func() { hung <- h.Health(t.Context())["fake"] }()
	manual.BlockUntil(1)
	manual.Advance(3 * time.Second)
	if got := <-hung; got != "it does not answer" {
		t.Errorf("an engine that hangs: %q", got)
	}
}

// later is the real clock, by which everything began some time before.
type later struct {
	clock.Clock
	by atomic.Int64
}

func (l *later) Since(t clock.Instant) time.Duration {
	return l.Clock.Since(t) + time.Duration(l.by.Load())
}

// TestHealthOfAnIdleServer: the result of a trial counts for as long as it is the last one, by the real clock as well.
func TestHealthOfAnIdleServer(t *testing.T) {
	caps := fake.New(fake.Options{}).Capabilities()
	caps.OwnImages = false
	eng, clk := fake.New(fake.Options{Capabilities: &caps}), &later{Clock: clock.Real()}
	h := newHouse(t, untilKilled, func(o *execution.Options) {
		o.Clock = clk
		o.Engines = engine.NewSet("fake", engine.Source{Name: "fake",
			Open: func() (engine.Engine, error) { return eng, nil }})
	})
	if err := h.Open(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got := h.Health(t.Context())["fake"]; got != "ok" {
			t.Fatalf("an idle server that works: %q", got)
		}
		clk.by.Store(int64(5 * time.Second)) // the first answer came from a new trial
	}
}
