package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/test/await"
)

// tally counts what one principal has at once.
type tally struct {
	who cove.Principal
	atomic.Int32
}

func (n *tally) Hold(_ context.Context, who cove.Principal, already bool) (release func(), err error) {
	if who != n.who || !already {
		return nil, fmt.Errorf("%s holds a place, already: %v", who, already)
	}
	n.Add(1)
	return sync.OnceFunc(func() { n.Add(-1) }), nil
}

func (n *tally) Charge(ctx context.Context, _ cove.Principal) (charged context.Context, done func()) {
	return ctx, func() {}
}

func (n *tally) Spare(context.Context, cove.Principal) error { return nil }

// TestWhatNobodyWaitsFor: a command of a server that is gone is ended, unless it was to go on: then it is among what
// the sandbox's owner has at once until it ends.
func TestWhatNobodyWaitsFor(t *testing.T) {
	owner := cove.KeyHolder("ci")
	var mu sync.Mutex
	ended := map[string]bool{}
	wait := func(p *fake.Process) int {
		<-p.Context.Done()
		mu.Lock()
		defer mu.Unlock()
		ended[p.Args[1]] = true
		return 0
	}
	host, id := fake.NewHost(), cove.NewSandboxID()
	e := fake.New(fake.Options{Host: host, Programs: map[string]fake.Program{"wait": wait}})
	sb, err := provision.New(t.Context(), e, provision.Plan{ID: id,
		Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached}})
	if err != nil {
		t.Fatal(err)
	}
	for name, label := range map[string]string{"attended": "", "detached": detachedLabel} {
		if _, err := sb.Guest().Start(t.Context(), guest.ProcessSpec{Args: []string{"wait", name}, Env: []string{"PATH=/bin"},
			Dir: "/", Label: []byte(label)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	next := fake.New(fake.Options{Host: host})
	again, err := next.Adopt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	held := &tally{who: owner}
	m := New(Options{Clock: clock.Real(), Places: held, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() {
		again.Destroy(context.Background())
		next.Close()
		m.serving.Wait()
		if n := held.Load(); n != 0 {
			t.Errorf("%d places are taken at the end", n)
		}
	})
	ttys := terminals.New(terminals.Options{Sandbox: again, Clock: m.o.Clock, Log: m.o.Log, Serving: &m.serving})
	if err := m.adoptPrograms(t.Context(), owner, again, ttys); err != nil {
		t.Fatal(err)
	}
	await.That(t, "what nobody waits for ends", func() bool {
		mu.Lock()
		attended, detached := ended["attended"], ended["detached"]
		mu.Unlock()
		if detached {
			t.Fatal("what was to go on was ended")
		}
		return attended
	})
	if n := held.Load(); n != 1 {
		t.Errorf("a detached command has %d places", n)
	}
	if len(ttys.List()) != 0 {
		t.Error("it is a terminal")
	}
}
