package httpapi

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/store"
)

// The sandbox package records executions. The API records the requests that it refuses (invariant A5), at a bounded
// rate, so that strangers cannot fill the disk. Beyond these rates a refusal is only logged.
const (
	refusalsPerSecond = 1
	refusalsAtOnce    = 200
)

// edge is routes, their description, and what every handler needs.
type edge struct {
	*common
	mux mux
	api huma.API
}

// common holds what every handler needs: the services, and the record of refusals.
type common struct {
	Options
	metrics *metrics
	inputs  inputs
	refused struct {
		total *rate.Limiter
		each  *limiter
	}
	base    clock.Instant
	since   time.Time
	listens addresses
	closing chan struct{} // closed when streams without an end of their own are to end
}

func newCommon(o Options) *common {
	s := &common{Options: o, metrics: newMetrics(o.Executor, o.Pool), base: o.Clock.Monotonic(), since: o.Clock.Now(),
		closing: make(chan struct{})}
	s.metrics.registry.MustRegister(o.Collectors...)
	s.refused.total = rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)
	s.refused.each = newLimiter(Rate{PerSecond: 0.1, Burst: 20}, nil)
	return s
}

// newEdge returns an edge without routes.
func newEdge(s *common) *edge {
	e := &edge{common: s}
	e.api = humago.New(&e.mux, describe(s.Version))
	listCodes(e.api.OpenAPI().Components.Schemas)
	return e
}

// deny appends a refusal to the audit log. It is what the caller was told:
// callers read the log, and its hashes would give away anything kept from them.
func (s *common) deny(ctx context.Context, who cove.Principal, action, object string, err error) {
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	if ok, _ := s.refused.each.allow(who.String(), now); !ok || !s.refused.total.AllowN(now, 1) {
		return
	}
	a := store.Auditor{Store: s.Store, Clock: s.Clock, Log: s.Log}
	a.Audit(ctx, who, store.Record{Action: action, Object: object, Verdict: "deny", Detail: err.Error()})
}
