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
	r.Time = a.Clock.Now().UTC()
	if err := a.Store.For(who).Append(context.WithoutCancel(ctx), r); err != nil {
		a.Log.Error("cannot write the audit log", "action", r.Action, "object", r.Object, "error", err)
	}
}
