package httpapi

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/store"
)

type auditInput struct {
	Action  string    `query:"action" maxLength:"64" doc:"Only of this kind: execute, kill, network, approve, revoke, attach, request, sweep"`
	Object  string    `query:"object" maxLength:"4096" doc:"Only about this: an execution's id, a path, a route, an engine"`
	Verdict string    `query:"verdict" enum:"ok,deny,error" doc:"Only with this verdict"`
	Since   time.Time `query:"since" doc:"Recorded at or after this time"`
	Until   time.Time `query:"until" doc:"Recorded before this time"`
	Cursor  string    `query:"cursor" maxLength:"256" doc:"next_cursor of the page before"`
	Limit   int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows in a page"`
}

// auditLog is GET /audit.
func (s *Server) auditLog(ctx context.Context, in *auditInput) (*answer[api.AuditList], error) {
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
func (s *Server) verifyAudit(ctx context.Context, _ *struct{}) (*answer[api.AuditVerification], error) {
	if err := s.ownerOnly(ctx, "verify", "", "the audit log as a whole is for the machine's owner"); err != nil {
		return nil, err
	}
	if !s.audit.verifying.TryLock() {
		return nil, cove.Errorf(cove.Overloaded, "the audit log is being verified for another caller").
			WithHint("try again in a few seconds")
	}
	defer s.audit.verifying.Unlock()
	v, err := s.Store.For(exchangeOf(ctx).who).Verify(ctx)
	if err != nil {
		return nil, err
	}
	return &answer[api.AuditVerification]{api.AuditVerification{Intact: v.Broken == 0, Records: v.Records, Head: v.Head,
		Broken: v.Broken}}, nil
}

// The sandbox package records executions. The API records the requests that it refuses (invariant A5), at a bounded
// rate, so that strangers cannot fill the disk. Beyond these rates a refusal is only logged.
const (
	refusalsPerSecond = 1
	refusalsAtOnce    = 200
)

type auditor struct {
	total     *rate.Limiter
	each      *limiter
	verifying sync.Mutex
}

func newAuditor() *auditor {
	return &auditor{total: rate.NewLimiter(refusalsPerSecond, refusalsAtOnce),
		each: newLimiter(Rate{PerSecond: 0.1, Burst: 20})}
}

// auditRefusal records that a guard turned a caller away for who it is.
func (s *Server) auditRefusal(ex *exchange, err error) {
	switch cove.ErrorCode(err) {
	case cove.Unauthenticated, cove.Forbidden:
		what := ex.pattern
		if what == "" {
			what = ex.r.Method
		}
		s.deny(ex.r.Context(), ex.who, "request", what, err)
	}
}

// ownerOnly refuses who is not the machine's owner, and records that.
func (s *Server) ownerOnly(ctx context.Context, action, object, why string) error {
	who := exchangeOf(ctx).who
	if who.IsOwner() {
		return nil
	}
	refusal := cove.Errorf(cove.Forbidden, "%s", why).WithHint("use the command line on that machine")
	s.deny(ctx, who, action, object, refusal)
	return refusal
}

// deny appends a refusal to the audit log. It is what the caller was told:
// callers read the log, and its hashes would give away anything kept from them.
func (s *Server) deny(ctx context.Context, who cove.Principal, action, object string, err error) {
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	if ok, _ := s.audit.each.allow(who.String(), now); !ok || !s.audit.total.AllowN(now, 1) {
		return
	}
	a := store.Auditor{Store: s.Store, Clock: s.Clock, Log: s.Log}
	a.Audit(ctx, who, store.Record{Action: action, Object: object, Verdict: "deny", Detail: err.Error()})
}
