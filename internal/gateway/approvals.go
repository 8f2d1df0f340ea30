package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/store"
)

// ApprovalsOptions configure Approvals. All are required.
type ApprovalsOptions struct {
	Store store.Vault
	Clock clock.Clock
	Log   *slog.Logger
}

// Approvals lists the open questions of every route of its gateways, and answers them for principals. Its methods may
// be called concurrently.
type Approvals struct {
	o ApprovalsOptions

	mu       sync.Mutex
	gateways []*Gateway
}

// NewApprovals returns Approvals without a gateway.
func NewApprovals(o ApprovalsOptions) *Approvals { return &Approvals{o: o} }

// Add adds the routes of a gateway.
func (a *Approvals) Add(g *Gateway) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gateways = append(a.gateways, g)
}

// ways returns the routes whose questions a principal sees.
func (a *Approvals) ways(who cove.Principal) (all []*Way) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.gateways {
		all = append(all, g.all()...)
	}
	return slices.DeleteFunc(all, func(w *Way) bool { return !who.Sees(w.asker) })
}

// Holds returns the open questions that a principal sees, the oldest first.
func (a *Approvals) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for _, w := range a.ways(who) {
		holds, _ := w.Holds()
		all = append(all, holds...)
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// Answer answers a question as a principal who sees it. may judges whether the principal may give this answer; its
// error is Answer's. Errors: NotFound when the question is not open in this process, InvalidArgument, those of
// Records.Approve.
func (a *Approvals) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, answer approval.Answer,
	may func(approval.Hold) error) error {
	for _, w := range a.ways(who) {
		holds, _ := w.Holds()
		i := slices.IndexFunc(holds, func(h approval.Hold) bool { return h.ID == id })
		if i < 0 {
			continue
		}
		if err := may(holds[i]); err != nil {
			return err
		}
		answer, err := answer.Normal()
		if err != nil {
			return err
		}
		what, err := w.Answer(ctx, who, id, answer)
		if err != nil {
			return err
		}
		a.audit(ctx, who, store.Record{Action: "approve", Object: w.object, Verdict: answer.Verdict(),
			Detail: answer.Describe(what)})
		return nil
	}
	return notOpen(id)
}

// Revoke removes a stored approval of a principal. Errors: NotFound.
func (a *Approvals) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	if err := a.o.Store.For(who).Revoke(ctx, id); err != nil {
		return err
	}
	a.audit(ctx, who, store.Record{Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}

// audit records an act of a principal. It reports a log that cannot be written, since the record must not be missing
// silently.
func (a *Approvals) audit(ctx context.Context, who cove.Principal, record store.Record) {
	record.Time = a.o.Clock.Now().UTC()
	if err := a.o.Store.For(who).Append(context.WithoutCancel(ctx), record); err != nil {
		a.o.Log.Error("cannot write the audit log", "action", record.Action, "object", record.Object, "error", err)
	}
}

func notOpen(id cove.HoldID) error {
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).
		WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// asker is the principal who answers the questions of a route.
func (s Spec) asker() cove.Principal {
	if s.Asker == (cove.Principal{}) {
		return s.Owner
	}
	return s.Asker
}

// object is the route in the audit log.
func (s Spec) object() string { return cmp.Or(s.Object, string(s.Sandbox)) }

// EndBy limits how long questions are shown to be open: by then the program that waits has ended.
func (w *Way) EndBy(deadline time.Time) { w.deadline.Store(&deadline) }

// describe names the route in a question, and limits the question's time.
func (w *Way) describe(h approval.Hold) approval.Hold {
	name := *w.name.Load()
	if w.owner == cove.RegisteredClient(name) {
		h.Client = name
	} else {
		h.Execution = cove.ExecutionID(name)
	}
	if deadline := w.deadline.Load(); deadline != nil && deadline.Before(h.Until) {
		h.Until = *deadline
	}
	return h
}
