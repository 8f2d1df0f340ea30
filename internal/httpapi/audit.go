package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/store"
)

// auditRoutes serve the audit log.
type auditRoutes struct {
	*edge
	verifying *sync.Mutex // held while the whole log is read
}

func (s auditRoutes) add() {
	route(s, huma.Operation{OperationID: "list-audit", Method: http.MethodGet, Path: "/audit", Tags: []string{"history"},
		Summary: "Read the audit log, newest first",
		Description: "Who did what to which object, with which verdict and why: what the caller did, without hashes; all " +
			"of it for the machine's owner. Only ever added to, until its retention is over, or it exceeds " +
			"audit.max_mb: then the oldest records of the caller that has most go, and a record of the action prune says so.",
	}, storeErrors, s.auditLog)

	route(s, huma.Operation{OperationID: "verify-audit", Method: http.MethodGet, Path: "/audit/verify",
		Tags:    []string{"history"},
		Summary: "Check that the audit log is as it was written",
		Description: "Walks the chain of hashes from the oldest record to the newest. A log that " +
			"has been changed is an answer, not an error.",
	}, storeErrors, s.verifyAudit)
}

type auditInput struct {
	Action  string    `query:"action" maxLength:"64" doc:"Only of this kind: execute, kill, network, approve, revoke, attach, request, sweep, prune"`
	Object  string    `query:"object" maxLength:"4096" doc:"Only about this: an execution's id, a path, a route, an engine"`
	Verdict string    `query:"verdict" enum:"ok,deny,error" doc:"Only with this verdict"`
	Since   time.Time `query:"since" doc:"Recorded at or after this time"`
	Until   time.Time `query:"until" doc:"Recorded before this time"`
	Cursor  string    `query:"cursor" maxLength:"256" doc:"next_cursor of the page before"`
	Limit   int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows in a page"`
}

// auditLog is GET /audit.
func (s auditRoutes) auditLog(ctx context.Context, in *auditInput) (*answer[api.AuditList], error) {
	page, err := s.Store.For(exchangeOf(ctx).who).
		Audit(ctx, store.AuditQuery{Action: in.Action, Object: in.Object, Verdict: in.Verdict,
			Since: in.Since, Until: in.Until, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := api.AuditList{Records: make([]api.AuditRecord, 0, len(page.Records)), NextCursor: page.Next}
	for _, r := range page.Records {
		out.Records = append(out.Records, apispec.AuditRecord(r))
	}
	return &answer[api.AuditList]{out}, nil
}

// verifyAudit is GET /audit/verify. It reads the whole log, so one at a time must do.
func (s auditRoutes) verifyAudit(ctx context.Context, _ *struct{}) (*answer[api.AuditVerification], error) {
	if !s.verifying.TryLock() {
		return nil, cove.Errorf(cove.Overloaded, "the audit log is being verified for another caller").
			WithHint("try again in a few seconds")
	}
	defer s.verifying.Unlock()
	v, err := s.Store.For(cove.System("")).Verify(ctx) // the log as a whole has no owner
	if err != nil {
		return nil, err
	}
	return &answer[api.AuditVerification]{api.AuditVerification{Intact: v.Broken == 0, Records: v.Records, Head: v.Head,
		Broken: v.Broken}}, nil
}
