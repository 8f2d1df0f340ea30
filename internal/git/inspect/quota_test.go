package inspect

import (
	"context"
	"errors"
	"log/slog"
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
	asked chan struct{} // after each question; may be nil

	mu   sync.Mutex
	used time.Duration
}

func (q *quota) now() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

func (q *quota) Spare(_ context.Context, who cove.Principal) error {
	used := q.now()
	if q.asked != nil {
		q.asked <- struct{}{}
	}
	if who == q.owner && used >= q.most {
		return cove.Errorf(cove.Overloaded, "it is used up")
	}
	return nil
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
	q := &quota{owner: cove.KeyHolder("ci"), most: time.Nanosecond, asked: make(chan struct{}, 4)}
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
