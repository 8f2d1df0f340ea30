package execution

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/store"
)

// Asked is an Output that is told of what waits for an answer: all of it,
// whenever it changes, until Execute returns. It is called beside Stdout and
// Stderr, not in turn with them.
type Asked interface {
	Holds([]approval.Hold)
}

// Holds lists what waits for an answer of the principal's in the executions of this process, the oldest first.
func (m *Executions) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for _, e := range m.executions() {
		if who.Sees(e.who) {
			holds, _ := e.holds()
			all = append(all, holds...)
		}
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// Answer answers, for the principal, what waits in an execution of the principal's. may judges whether it may be
// answered so, and its error is Answer's. Errors: NotFound when it does not wait in this process, InvalidArgument.
func (m *Executions) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	for _, e := range m.executions() {
		holds, _ := e.holds()
		i := slices.IndexFunc(holds, func(h approval.Hold) bool { return h.ID == id })
		if i < 0 || !who.Sees(e.who) {
			continue
		}
		if err := may(holds[i]); err != nil {
			return err
		}
		a, err := a.Normal()
		if err != nil {
			return err
		}
		what, err := e.wayOut().Answer(ctx, who, id, a)
		if err != nil {
			return err
		}
		m.Audit(ctx, who, store.Record{Action: "approve", Object: string(e.id), Verdict: a.Verdict(), Detail: a.Describe(what)})
		return nil
	}
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

func (m *Executions) executions() []*execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*execution, 0, len(m.running))
	for _, e := range m.running {
		all = append(all, e)
	}
	return all
}

// holds are what waits in e. Nothing waits longer than e may take.
func (e *execution) holds() ([]approval.Hold, <-chan struct{}) {
	e.mu.Lock()
	way, deadline := e.way, e.deadline
	e.mu.Unlock()
	if way == nil {
		return nil, nil
	}
	all, changed := way.Holds()
	for i := range all {
		all[i].Execution = e.id
		if !deadline.IsZero() && deadline.Before(all[i].Until) {
			all[i].Until = deadline
		}
	}
	return all, changed
}

// tellHolds tells the output of e what waits, until stop is called.
func (e *execution) tellHolds() (stop func()) {
	out, ok := e.output.to.(Asked)
	if !ok || e.wayOut() == nil {
		return func() {}
	}
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		told := 0
		for {
			all, changed := e.holds()
			if len(all)+told > 0 {
				out.Holds(all)
			}
			told = len(all)
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

// mayTake notes that the program may take so long from now on.
func (e *execution) mayTake(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = e.manager.o.Clock.Now().Add(d)
}
