package sandbox

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

// asking is who may hold requests: an execution, or a sandbox that lasts.
type asking interface {
	holds() ([]approval.Hold, <-chan struct{})
	wayOut() Way
	object() string // for the record
	owner() cove.Principal
}

// asking lists those of p.
func (m *Manager) asking(who cove.Principal) []asking {
	var all []asking
	for _, e := range m.executions() {
		all = append(all, e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.residents {
		if r.open.way != nil {
			all = append(all, lastingAsk{r.id, r.open})
		}
	}
	for e := range m.errands {
		all = append(all, e)
	}
	return slices.DeleteFunc(all, func(a asking) bool { return !who.Sees(a.owner()) })
}

// errand is what the host does for a sandbox that lasts, on a way out of its own.
type errand struct{ lastingAsk }

// Errand has what the host asks for the principal on a way out, for a sandbox that lasts, wait
// for the principal's answer as what the sandbox asks does, until done is called.
func (m *Manager) Errand(who cove.Principal, id cove.SandboxID, name string, way Way) (done func()) {
	e := &errand{lastingAsk{id, opened{of: who, name: name, way: way}}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errands[e] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.errands, e)
	}
}

// lastingAsk is a sandbox that lasts.
type lastingAsk struct {
	id   cove.SandboxID
	open opened
}

func (l lastingAsk) wayOut() Way           { return l.open.way }
func (l lastingAsk) object() string        { return string(l.id) }
func (l lastingAsk) owner() cove.Principal { return l.open.of }
func (l lastingAsk) holds() ([]approval.Hold, <-chan struct{}) {
	all, changed := l.open.way.Holds()
	for i := range all {
		all[i].Execution = cove.ExecutionID(l.open.name)
	}
	return all, changed
}

// Holds lists what waits for an answer of the principal's in the executions of this process
// and in the sandboxes that last, the oldest first. A sandbox is named in place of
// an execution.
func (m *Manager) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for _, e := range m.asking(who) {
		holds, _ := e.holds()
		all = append(all, holds...)
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// Answer answers, as the principal, what waits as id in something of the principal's; may judges whether it
// may say so, and its error is Answer's. Errors: NotFound when it does not wait in
// this process, InvalidArgument.
func (m *Manager) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	for _, e := range m.asking(who) {
		holds, _ := e.holds()
		i := slices.IndexFunc(holds, func(h approval.Hold) bool { return h.ID == id })
		if i < 0 {
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
		m.audit(ctx, who, store.Record{Action: "approve", Object: e.object(), Verdict: a.Verdict(), Detail: a.Describe(what)})
		return nil
	}
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// Revoke forgets an approval of the principal's. Errors: NotFound.
func (m *Manager) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	if err := m.o.Store.For(who).Revoke(ctx, id); err != nil {
		return err
	}
	m.audit(ctx, who, store.Record{Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}

func (m *Manager) executions() []*execution {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*execution, 0, len(m.running))
	for _, e := range m.running {
		all = append(all, e)
	}
	return all
}

func (e *execution) object() string        { return string(e.id) }
func (e *execution) owner() cove.Principal { return e.who }

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
