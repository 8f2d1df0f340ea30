package sandbox

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/store"
)

// asking lists those of a principal.
func (s *Sandboxes) asking(who cove.Principal) []asking {
	var all []asking
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.held {
		if r.open.way != nil {
			all = append(all, asking{r.id, r.open})
		}
	}
	for e := range s.errands {
		all = append(all, e.asking)
	}
	return slices.DeleteFunc(all, func(a asking) bool { return !who.Sees(a.open.of) })
}

// errand is what the host does for a sandbox that lasts, on a way out of its own.
type errand struct{ asking }

// Errand has what the host asks for the principal on a way out, for a sandbox that lasts, wait
// for the principal's answer as what the sandbox asks does, until done is called.
func (s *Sandboxes) Errand(who cove.Principal, id cove.SandboxID, name string, way egress.Route) (done func()) {
	e := &errand{asking{id, opened{of: who, name: name, way: way}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errands[e] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.errands, e)
	}
}

// asking is a sandbox whose requests may wait.
type asking struct {
	id   cove.SandboxID
	open opened
}

func (l asking) holds() ([]approval.Hold, <-chan struct{}) {
	all, changed := l.open.way.Holds()
	for i := range all {
		all[i].Execution = cove.ExecutionID(l.open.name)
	}
	return all, changed
}

// Holds lists what waits for an answer of the principal's in the executions of this process
// and in the sandboxes that last, the oldest first. A sandbox is named in place of
// an execution.
func (s *Sandboxes) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for _, e := range s.asking(who) {
		holds, _ := e.holds()
		all = append(all, holds...)
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// Answer answers, as the principal, what waits as id in something of the principal's; may judges whether it
// may say so, and its error is Answer's. Errors: NotFound when it does not wait in
// this process, InvalidArgument.
func (s *Sandboxes) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	for _, e := range s.asking(who) {
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
		what, err := e.open.way.Answer(ctx, who, id, a)
		if err != nil {
			return err
		}
		s.Audit(ctx, who, store.Record{Action: "approve", Object: string(e.id), Verdict: a.Verdict(), Detail: a.Describe(what)})
		return nil
	}
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// Revoke forgets an approval of the principal's. Errors: NotFound.
func (s *Sandboxes) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	if err := s.o.Store.For(who).Revoke(ctx, id); err != nil {
		return err
	}
	s.Audit(ctx, who, store.Record{Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}
