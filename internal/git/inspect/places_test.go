package inspect

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// slowEngine prepares no sandbox before it is told to.
type slowEngine struct {
	engine.Engine
	end chan struct{}
}

func (slowEngine) Capabilities() engine.Capabilities { return engine.Capabilities{LateMount: true} }

func (e slowEngine) Prepare(context.Context, engine.Template) (engine.Sandbox, error) {
	<-e.end
	return nil, errors.New("it was slow")
}

// TestSlowPacks: packs of one sandbox that take long are looked into one at a
// time, and those of others go on beside them, sandbox by sandbox.
func TestSlowPacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{}) // one thing that is looked into ends
		slow := engine.Source{Name: "slow", Open: func() (engine.Engine, error) { return slowEngine{end: end}, nil }}
		i := New(Options{Dir: t.TempDir(), Engines: engine.NewSet("slow", slow)})
		var ended atomic.Int32
		push := func(sandbox cove.SandboxID) {
			go func() {
				i.Inspect(t.Context(), Job{Sandbox: Sandbox{ID: sandbox}})
				ended.Add(1)
			}()
			synctest.Wait() // they come in this order
		}
		looked := func(sandbox cove.SandboxID) {
			t.Helper()
			i.places.mu.Lock()
			defer i.places.mu.Unlock()
			if i.places.taken[sandbox] != 1 {
				t.Errorf("packs of %v are looked into, without one of %s", i.places.taken, sandbox)
			}
		}
		for range 3 {
			push("slow")
		}
		looked("slow")
		push("other")
		looked("slow")
		looked("other")

		// A third waits for what was looked into when it came, and for one pack of each sandbox that waited before it.
		push("third")
		for range 2 {
			end <- struct{}{}
			synctest.Wait()
		}
		looked("third")

		close(end)
		synctest.Wait()
		if ended.Load() != 5 || len(i.places.taken)+len(i.places.lines) != 0 {
			t.Errorf("%d have ended; places: %v, %v", ended.Load(), i.places.taken, i.places.lines)
		}
	})
}

// TestPlaces: turns, half of the places, and who goes away while it waits.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(4)
		var inside []cove.SandboxID
		come := func(ctx context.Context, sandbox cove.SandboxID) {
			go func() {
				if p.enter(ctx, sandbox) == nil {
					inside = append(inside, sandbox)
				}
			}()
			synctest.Wait()
		}
		want := func(all ...cove.SandboxID) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(inside, all) {
				t.Errorf("inside are %q, not %q", inside, all)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 5 {
			come(t.Context(), "a")
		}
		want("a", "a")
		come(t.Context(), "b")
		come(t.Context(), "b")
		want("a", "a", "b", "b")
		come(ctx, "c")
		come(ctx, "d")
		come(t.Context(), "d")
		cancel() // c has no line any more, d one that is shorter
		synctest.Wait()
		if len(p.lines) != 2 || len(p.lines[1].turns) != 1 {
			t.Errorf("waiting are %v", p.lines)
		}
		p.leave("b")
		want("a", "a", "b", "b", "d") // a has its share
		p.leave("d")
		want("a", "a", "b", "b", "d")
		p.leave("a")
		want("a", "a", "b", "b", "d", "a")
		come(t.Context(), "e") // one place was left
		p.leave("a")
		want("a", "a", "b", "b", "d", "a", "e", "a")
		for _, s := range []cove.SandboxID{"a", "a", "b", "e"} {
			p.leave(s)
			synctest.Wait()
		}
		p.leave("a")
		synctest.Wait()
		if len(inside) != 9 || len(p.taken)+len(p.lines) != 0 {
			t.Errorf("inside were %q; places: %v, %v", inside, p.taken, p.lines)
		}

		// Whoever is given a place and goes away at once leaves it.
		if p.enter(ctx, "f") == nil {
			p.leave("f")
		}
		if len(p.taken)+len(p.lines) != 0 {
			t.Errorf("places: %v, %v", p.taken, p.lines)
		}
	})
}
