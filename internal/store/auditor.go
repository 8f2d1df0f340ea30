package store

import (
	"context"
	"log/slog"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

// Auditor appends to the audit log for services.
type Auditor struct {
	Store Vault
	Clock clock.Clock
	Log   *slog.Logger
}

// Audit records what a principal did. An error is logged, since the record must not be missing silently.
func (a Auditor) Audit(ctx context.Context, who cove.Principal, r Record) {
	if err := a.Note(ctx, who, r); err != nil {
		a.Log.Error("cannot write the audit log", "action", r.Action, "object", r.Object, "error", err)
	}
}

// Note records what a principal is about to do, which an error is to prevent.
func (a Auditor) Note(ctx context.Context, who cove.Principal, r Record) error {
	r.Time = a.Clock.Now().UTC()
	return a.Store.For(who).Append(context.WithoutCancel(ctx), r)
}
