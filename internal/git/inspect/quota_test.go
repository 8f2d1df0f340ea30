package inspect

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/cputime"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
)

// quota lets one owner use so much, and keeps what was used.
type quota struct {
	owner cove.Principal
	most  time.Duration
	left  time.Duration // until then
	asked chan struct{} // after each question; may be nil

	mu   sync.Mutex
	used time.Duration
}

func (q *quota) now() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

func (q *quota) Left(_ context.Context, who cove.Principal) (time.Duration, error) {
	used := q.now()
	if q.asked != nil {
		q.asked <- struct{}{}
	}
	if who != q.owner {
		return math.MaxInt64, nil
	}
	if used >= q.most {
		return 0, cove.Errorf(cove.Overloaded, "it is used up")
	}
	return q.left, nil
}

func (q *quota) Charge(ctx context.Context, who cove.Principal) (context.Context, func()) {
	var m cputime.Meter
	return m.In(ctx), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if who == q.owner {
			q.used += m.Used()
		}
	}
}

// TestQuotas: what is looked into counts for the owner of its sandbox, also where it is broken off. Where nothing is
// left, no sandbox is made, and what waited for another is told so when its turn comes.
func TestQuotas(t *testing.T) {
	begun := make(chan struct{}, 4)
	e := fake.New(fake.Options{Programs: map[string]fake.Program{"git": func(p *fake.Process) int {
		begun <- struct{}{}
		<-p.Context.Done()
		return 1
	}}})
	defer e.Close()
	q := &quota{owner: cove.KeyHolder("ci"), most: time.Nanosecond, left: time.Hour, asked: make(chan struct{}, 4)}
	i := New(Options{Dir: t.TempDir(), Engines: engine.NewSet("fake", engine.Source{Name: "fake",
		Open: func() (engine.Engine, error) { return e, nil }}), Quotas: q,
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	look := func(ctx context.Context, owner cove.Principal) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := i.Inspect(ctx, Job{Sandbox: Sandbox{ID: "box", Owner: owner}, Pack: strings.NewReader("")})
			ended <- err
		}()
		return ended
	}
	isSpent := func(name string, err error) {
		t.Helper()
		if _, is := errors.AsType[*Spent](err); !is || cove.ErrorCode(err) != cove.Overloaded {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	first := look(ctx, q.owner)
	<-q.asked // before it waits, and after that
	<-q.asked
	<-begun
	second := look(t.Context(), q.owner)
	<-q.asked
	leave()
	if err := <-first; err == nil || cove.ErrorCode(err) == cove.Overloaded {
		t.Errorf("within the quota: %v", err)
	}
	if used := q.now(); used != time.Millisecond { // what the engine says of a program
		t.Fatalf("%v is counted", used)
	}
	<-q.asked
	isSpent("one that has waited", <-second)
	q.asked = nil
	isSpent("one more", <-look(t.Context(), q.owner))
	if _, err := i.Unreachable(t.Context(), Sandbox{ID: "box", Owner: q.owner}, []string{"tip"}, []string{"want"}, 1,
		nil); err != nil {
		isSpent("a fetch", err)
	} else {
		t.Error("a fetch is looked into")
	}
	if n := e.Prepared(); n != 1 {
		t.Errorf("%d sandboxes were made for the owner", n)
	}
	ctx, leave = context.WithCancel(t.Context())
	other := look(ctx, cove.KeyHolder("other"))
	<-begun
	leave()
	if err := <-other; err == nil || cove.ErrorCode(err) == cove.Overloaded {
		t.Errorf("another owner: %v", err)
	}
}

// TestTimeLeft: what is looked into ends with the CPU time that its owner has left, and the owner is told so. That it
// takes too long by itself is a defect of the push.
func TestTimeLeft(t *testing.T) {
	e := fake.New(fake.Options{Programs: map[string]fake.Program{"git": func(p *fake.Process) int {
		<-p.Context.Done()
		return 1
	}}})
	defer e.Close()
	for _, c := range []struct {
		name           string
		left, patience time.Duration
	}{{"little CPU time", 20 * time.Millisecond, time.Hour}, {"little time", time.Hour, 20 * time.Millisecond}} {
		q := &quota{owner: cove.KeyHolder("ci"), most: time.Hour, left: c.left}
		i := New(Options{Dir: t.TempDir(), Engines: engine.NewSet("fake", engine.Source{Name: "fake",
			Open: func() (engine.Engine, error) { return e, nil }}), Quotas: q, Timeout: c.patience,
			Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
		box := Sandbox{ID: "box", Owner: q.owner}
		facts, err := i.Inspect(t.Context(), Job{Sandbox: box, Pack: strings.NewReader("")})
		_, spent := errors.AsType[*Spent](err)
		if few := c.left < c.patience; spent != few || few && cove.ErrorCode(err) != cove.Overloaded {
			t.Errorf("%s: %+v, %v", c.name, facts, err)
		}
		_, err = i.Unreachable(t.Context(), box, []string{"tip"}, []string{"want"}, 1, nil)
		if _, spent := errors.AsType[*Spent](err); spent != (c.left < c.patience) {
			t.Errorf("%s: a fetch: %v", c.name, err)
		}
	}
}
