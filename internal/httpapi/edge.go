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

// edge holds what every handler needs: the services, the description of the API, and the record of refusals.
type edge struct {
	Options
	mux     mux
	api     huma.API
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

func newEdge(o Options) *edge {
	s := &edge{Options: o, metrics: newMetrics(o.Executor, o.Pool), base: o.Clock.Monotonic(), since: o.Clock.Now(),
		closing: make(chan struct{})}
	s.api = humago.New(&s.mux, describe(o.Version))
	listCodes(s.api.OpenAPI().Components.Schemas)
	s.metrics.registry.MustRegister(o.Collectors...)
	s.refused.total = rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)
	s.refused.each = newLimiter(Rate{PerSecond: 0.1, Burst: 20}, nil)
	return s
}

// deny appends a refusal to the audit log. It is what the caller was told:
// callers read the log, and its hashes would give away anything kept from them.
func (s *edge) deny(ctx context.Context, who cove.Principal, action, object string, err error) {
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	if ok, _ := s.refused.each.allow(who.String(), now); !ok || !s.refused.total.AllowN(now, 1) {
		return
	}
	a := store.Auditor{Store: s.Store, Clock: s.Clock, Log: s.Log}
	a.Audit(ctx, who, store.Record{Action: action, Object: object, Verdict: "deny", Detail: err.Error()})
}
