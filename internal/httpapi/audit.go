package httpapi

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// What runs is recorded by the sandbox package. The edge records whom and what
// it turns away (invariant A5), but not without end: strangers must not fill
// the disk. Beyond these rates there is the log alone.
const (
	refusalsPerSecond = 1
	refusalsAtOnce    = 200
)

type auditor struct {
	total *rate.Limiter
	each  *limiter
}

func newAuditor() auditor {
	return auditor{rate.NewLimiter(refusalsPerSecond, refusalsAtOnce), newLimiter(Rate{PerSecond: 0.1, Burst: 20})}
}

// auditRefusal records that a guard turned a caller away for who it is.
func (s *Server) auditRefusal(ex *exchange, err error) {
	switch cove.ErrorCode(err) {
	case cove.Unauthenticated, cove.Forbidden:
		what := ex.pattern
		if what == "" {
			what = ex.r.Method
		}
		s.deny(ex.r.Context(), ex.caller.name, "request", what, err)
	}
}

// deny appends a refusal to the audit log.
func (s *Server) deny(ctx context.Context, who, action, object string, err error) {
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	if ok, _ := s.audit.each.allow(who, now); !ok || !s.audit.total.AllowN(now, 1) {
		return
	}
	r := store.Record{Time: s.Clock.Now().UTC(), Who: who, Action: action, Object: object, Verdict: "deny", Detail: err.Error()}
	if err := s.Store.Append(context.WithoutCancel(ctx), r); err != nil {
		s.Log.Error("cannot write the audit log", "action", action, "object", object, "error", err)
	}
}
