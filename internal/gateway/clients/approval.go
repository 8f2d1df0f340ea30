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
func (r *Registry) Holds(who cove.Principal) []approval.Hold {
	var all []approval.Hold
	for name, way := range r.ways(who) {
		holds, _ := way.Holds()
		for _, h := range holds {
			h.Client = name
			all = append(all, h)
		}
	}
	slices.SortFunc(all, approval.ByAge)
	return all
}

// ways are those of the clients that have one, as far as the principal sees them.
func (r *Registry) ways(who cove.Principal) map[string]*gateway.Way {
	if !who.Sees(cove.MachineOwner()) {
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

// Answer answers, as the principal, what waits as id; may judges whether it may say so, and its
// error is Answer's. Errors: NotFound, InvalidArgument.
func (r *Registry) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error {
	a, err := a.Normal()
	if err != nil {
		return err
	}
	for name, way := range r.ways(who) {
		holds, _ := way.Holds()
		i := slices.IndexFunc(holds, func(h approval.Hold) bool { return h.ID == id })
		if i < 0 {
			continue
		}
		holds[i].Client = name
		if err := may(holds[i]); err != nil {
			return err
		}
		what, err := way.Answer(ctx, who, id, a)
		if err != nil {
			return err
		}
		r.audit(ctx, who, store.Record{Action: "approve", Object: name, Verdict: a.Verdict(), Detail: a.Describe(what)})
		return nil
	}
	return cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
}

// Revoke forgets an approval of the principal's. Errors: NotFound.
func (r *Registry) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	if err := r.o.Store.For(who).Revoke(ctx, id); err != nil {
		return err
	}
	r.audit(ctx, who, store.Record{Action: "revoke", Object: string(id), Verdict: "ok"})
	return nil
}

// audit records what a principal did; a log that cannot be written is reported,
// because the record must not be missing silently.
func (r *Registry) audit(ctx context.Context, who cove.Principal, record store.Record) {
	record.Time = r.o.Clock.Now().UTC()
	if err := r.o.Store.For(who).Append(context.WithoutCancel(ctx), record); err != nil {
		r.o.Log.Error("cannot write the audit log", "action", record.Action, "object", record.Object, "error", err)
	}
}
