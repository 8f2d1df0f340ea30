package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/store"
)

// Approvals lists and answers the open questions of its gateways' routes. Its methods may be called concurrently.
type Approvals struct {
	store.Auditor

	mu       sync.Mutex
	gateways []*Gateway
}

// NewApprovals returns Approvals without a gateway.
func NewApprovals(a store.Auditor) *Approvals { return &Approvals{Auditor: a} }

// Add adds the routes of a gateway.
func (a *Approvals) Add(g *Gateway) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gateways = append(a.gateways, g)
}

func (a *Approvals) routes(who cove.Principal) (all []*Route) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.gateways {
		all = append(all, g.all()...)
	}
	return slices.DeleteFunc(all, func(r *Route) bool { return !who.Sees(r.asker) })
}

// Holds returns the open questions that a principal sees, the oldest first.
func (a *Approvals) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for _, r := range a.routes(who) {
		holds, _ := r.Holds()
		all = append(all, holds...)
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// Answer answers a question as a principal who sees it, unless may refuses that. Errors: may's, InvalidArgument,
// NotFound when the question is not open in this process, those of Records.Approve.
func (a *Approvals) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, answer approval.Answer,
	may func(approval.Hold) error) error {
	for _, r := range a.routes(who) {
		holds, _ := r.Holds()
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
		what, err := r.Answer(ctx, who, id, answer)
		if err != nil {
			return err
		}
		a.Audit(ctx, who, store.Record{Action: "approve", Object: r.object, Verdict: answer.Verdict(),
			Detail: answer.Describe(what)})
		return nil
	}
	return notOpen(id)
}

// Revoke removes a stored approval of a principal. Errors: NotFound.
func (a *Approvals) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	if err := a.Store.For(who).Revoke(ctx, id); err != nil {
		return err
	}
	a.Audit(ctx, who, store.Record{Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}
