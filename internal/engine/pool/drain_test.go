package pool_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
)

// slow is an engine that destroys a sandbox when it is told to.
type slow struct {
	engine.Engine
	begun, goOn chan struct{}
}

type slowSandbox struct {
	engine.Sandbox
	of slow
}

func (s slow) Prepare(ctx context.Context, t engine.Template) (engine.Sandbox, error) {
	sb, err := s.Engine.Prepare(ctx, t)
	return slowSandbox{sb, s}, err
}

func (s slowSandbox) Destroy(ctx context.Context) error {
	s.of.begun <- struct{}{}
	<-s.of.goOn
	return s.Sandbox.Destroy(ctx)
}

// TestDrainWaits: Drain returns when the sandboxes are destroyed, or its context ends, and the pool serves meanwhile.
func TestDrainWaits(t *testing.T) {
	b := newBench(t)
	s := slow{b.engine, make(chan struct{}, 1), make(chan struct{})}
	r := b.recipe(1, true)
	r.Engine = s
	b.Warm(r, 1)
	b.settled(1, 1)
	ended, cancel := context.WithCancel(t.Context())
	drained := make(chan error)
	go func() { drained <- b.Drain(ended) }()
	<-s.begun
	if all, _ := b.Status(); len(all) != 0 || b.claim(b.recipe(2, false)) != nil {
		t.Errorf("in a drained pool: %+v", all)
	}
	b.settled(2, 1)
	cancel()
	if err := <-drained; cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "1 of the prepared") {
		t.Errorf("when its context ends: %v", err)
	}
	go func() { drained <- b.Drain(context.Background()) }()
	close(s.goOn)
	if err := <-drained; err != nil || len(b.engine.Live()) != 0 {
		t.Errorf("%v, and there are %v", err, b.engine.Live())
	}
}

// TestDrainFails: Drain says which sandboxes it leaves.
func TestDrainFails(t *testing.T) {
	b := newBench(t)
	b.Warm(b.recipe(1, false), 2)
	b.settled(1, 2)
	b.engine.Inject(fake.Faults{Destroy: errors.New("stuck")})
	err := b.Drain(t.Context())
	if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(err.Error(), "2 of the prepared") ||
		!strings.Contains(err.Error(), "stuck") {
		t.Error(err)
	}
	b.engine.Inject(fake.Faults{})
	for _, id := range b.engine.Live() {
		if err := b.engine.Sandbox(id).Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestDrainWhilePreparing: Drain stops the preparation under way and waits for its end.
func TestDrainWhilePreparing(t *testing.T) {
	b := newBench(t)
	r := b.recipe(1, true)
	begun, goOn := make(chan struct{}), make(chan struct{})
	plan := r.Plan
	r.Plan = func() provision.Plan {
		begun <- struct{}{}
		<-goOn
		return plan()
	}
	b.Warm(r, 1)
	<-begun
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Drain(ended); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("while one is prepared: %v", err)
	}
	drained := make(chan error)
	go func() { drained <- b.Drain(context.Background()) }()
	close(goOn)
	if err := <-drained; err != nil || len(b.engine.Live()) != 0 {
		t.Errorf("%v, and there are %v", err, b.engine.Live())
	}
	if all, totals := b.Status(); len(all) != 0 || totals.Failures != 0 || b.engine.Prepared() != 0 {
		t.Errorf("%d were prepared, %+v, %+v", b.engine.Prepared(), all, totals)
	}
	b.claim(b.recipe(1, false))
	b.settled(1, 1)
}
