package clients

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/store"
)

// Holds lists what waits for an answer, of all clients, the oldest first. Clients
// are the machine owner's.
func (r *Registry) Holds(p cove.Principal) []approval.Hold {
	var all []approval.Hold
	for name, way := range r.ways(p) {
		holds, _ := way.Holds()
		for _, h := range holds {
			h.Client = name
			all = append(all, h)
		}
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// ways are those of the clients that have one, as far as p sees them.
func (r *Registry) ways(p cove.Principal) map[string]*gateway.Way {
	if !p.Sees(cove.MachineOwner()) {
		return nil
	}
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

// Answer answers, as p, what waits as id; may judges whether p may say so, and its
// error is Answer's. Errors: NotFound, InvalidArgument.
func (r *Registry) Answer(ctx context.Context, p cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	a.Who = p.String()
	a, err := a.Normal()
	if err != nil {
		return err
	}
	for name, way := range r.ways(p) {
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

// Revoke forgets an approval; all are the machine owner's. Errors: NotFound.
func (r *Registry) Revoke(ctx context.Context, p cove.Principal, id cove.ApprovalID) error {
	if !p.Sees(cove.MachineOwner()) {
		return cove.Errorf(cove.NotFound, "no approval %.64q is remembered", id)
	}
	if err := r.o.Store.Revoke(ctx, "", id); err != nil {
		return err
	}
	r.audit(ctx, store.Record{Who: p.String(), Action: "revoke", Object: string(id), Verdict: "ok"})
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
