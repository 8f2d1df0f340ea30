package daemon

import (
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// asks are the requests that wait for an answer, in executions and in sandboxes.
type asks struct {
	executions *execution.Executions
	sandboxes  *sandbox.Sandboxes
}

// Holds implements httpapi.Asks.
func (a asks) Holds(who cove.Principal) []approval.Hold {
	return slices.SortedFunc(slices.Values(append(a.executions.Holds(who), a.sandboxes.Holds(who)...)), approval.ByAge)
}

// Answer implements httpapi.Asks.
func (a asks) Answer(ctx context.Context, who cove.Principal, id cove.HoldID, answer approval.Answer, may func(approval.Hold) error) error {
	err := a.executions.Answer(ctx, who, id, answer, may)
	if cove.ErrorCode(err) == cove.NotFound {
		return a.sandboxes.Answer(ctx, who, id, answer, may)
	}
	return err
}

// Revoke implements httpapi.Asks.
func (a asks) Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error {
	return a.sandboxes.Revoke(ctx, who, id)
}
