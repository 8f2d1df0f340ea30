package clients

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/store"
)

// Holds lists what waits for an answer, of all clients, the oldest first.
func (r *Registry) Holds() []approval.Hold {
	var all []approval.Hold
	for name, way := range r.ways() {
		holds, _ := way.Holds()
		for _, h := range holds {
			h.Client = name
			all = append(all, h)
		}
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// ways are those of the clients that have one.
func (r *Registry) ways() map[string]*gateway.Way {
	r.mu.Lock()
	defer r.mu.Unlock()
	ways := map[string]*gateway.Way{}
	for name, c := range r.all {
		if c.way != nil {
			ways[name] = c.way
		}
	}
	return ways
}

// Answer answers what waits as id; may judges whether the caller may say so, and
// its error is Answer's. Errors: NotFound, InvalidArgument.
func (r *Registry) Answer(ctx context.Context, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	a, err := a.Normal()
	if err != nil {
		return err
	}
	for name, way := range r.ways() {
		holds, _ := way.Holds()
		i := slices.IndexFunc(holds, func(h approval.Hold) bool { return h.ID == id })
		if i < 0 {
			continue
		}
		holds[i].Client = name
		if err := may(holds[i]); err != nil {
			return err
		}
		what, err := way.Answer(ctx, id, a)
		if err != nil {
			return err
		}
		r.audit(ctx, store.Record{Who: a.Who, Action: "approve", Object: name, Verdict: a.Verdict(), Detail: a.Describe(what)})
		return nil
	}
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// Revoke forgets an approval for who, a name for the record. Errors: NotFound.
func (r *Registry) Revoke(ctx context.Context, id cove.ApprovalID, who string) error {
	if err := r.o.Store.Revoke(ctx, id); err != nil {
		return err
	}
	r.audit(ctx, store.Record{Who: who, Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}

// audit appends to the audit log; one that cannot be written is reported,
// because the record must not be missing silently.
func (r *Registry) audit(ctx context.Context, record store.Record) {
	record.Time = r.o.Clock.Now().UTC()
	if err := r.o.Store.Append(context.WithoutCancel(ctx), record); err != nil {
		r.o.Log.Error("cannot write the audit log", "action", record.Action, "object", record.Object, "error", err)
	}
}
