package gateway

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/proxy"
)

// Rate bounds a sandbox's requests and passed-through connections to one host and port; a PerSecond of 0 does not.
type Rate struct {
	PerSecond float64
	Burst     int // requests at once, before the rate applies
}

const together = 4 // the factor by which a sandbox's rate to all hosts exceeds that to one

type rates struct {
	rate  Rate
	clock clock.Clock
	base  clock.Instant

	mu  sync.Mutex
	all *rate.Limiter
	one *simplelru.LRU[upstream, *bucket]
}

type bucket struct {
	*rate.Limiter
	ahead bool // a token has been taken for a request that has not come yet
}

func newRates(r Rate, c clock.Clock) *rates {
	return &rates{
		rate: r, clock: c, base: c.Monotonic(),
		all: rate.NewLimiter(rate.Limit(r.PerSecond*together), r.Burst*together),
		one: newRecent[*bucket](),
	}
}

// enter is the stage that takes a token for each request.
func (s *rates) enter(r policy.Request, _ *http.Request) (leg, error) {
	return leg{}, s.take(upstreamOf(r), func(b *bucket) (paid bool) {
		paid, b.ahead = b.ahead, false
		return paid
	})
}

// ahead takes a token for a connection that is made before its request. The request then takes none. If it does not
// come, the next connection takes another.
func (s *rates) ahead(to upstream) error {
	return s.take(to, func(b *bucket) (paid bool) {
		b.ahead = true
		return false
	})
}

// take takes a token of both buckets, unless it has been paid ahead.
func (s *rates) take(to upstream, paid func(*bucket) bool) error {
	if s.rate.PerSecond <= 0 {
		return nil
	}
	// A time derived from the monotonic clock, so that no jump fills or empties a bucket.
	now := time.Unix(1, 0).Add(s.clock.Since(s.base))
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.one.Get(to)
	if !ok {
		one = &bucket{Limiter: rate.NewLimiter(rate.Limit(s.rate.PerSecond), s.rate.Burst)}
		s.one.Add(to, one)
	}
	before := one.ahead
	if paid(one) {
		return nil
	}
	if !one.AllowN(now, 1) {
		one.ahead = before
		return tooMany(one.Limiter, now, "rate of one host", "to "+to.String())
	}
	if !s.all.AllowN(now, 1) {
		one.ahead = before
		return tooMany(s.all, now, "rate of the sandbox", "to all hosts together")
	}
	return nil
}

func tooMany(l *rate.Limiter, now time.Time, rule, where string) error {
	missing := 1 - l.TokensAt(now)
	return &proxy.Refusal{
		Code: cove.Overloaded, Rule: "gateway: " + rule,
		Reason: fmt.Sprintf("this sandbox asks more than %g times a second %s, and more than %d times at once",
			float64(l.Limit()), where, l.Burst()),
		Remedy: "wait, or set gateway.rate_limit in the configuration",
		After:  time.Duration(missing / float64(l.Limit()) * float64(time.Second)),
	}
}
