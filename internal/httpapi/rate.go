package httpapi

import (
	"container/list"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove"
)

// Rate bounds the requests of each caller. A PerSecond of 0 is no bound.
type Rate struct {
	PerSecond float64
	Burst     int
}

// maxCallers bounds the memory of a limiter. The caller that was silent longest is forgotten first: its bucket is as
// good as full.
const maxCallers = 4096

// limiter holds a token bucket for each caller.
type limiter struct {
	rate Rate

	mu     sync.Mutex
	byName map[string]*list.Element
	recent *list.List // of *bucket, the last seen first
}

type bucket struct {
	name string
	*rate.Limiter
}

func newLimiter(r Rate) *limiter {
	return &limiter{rate: r, byName: map[string]*list.Element{}, recent: list.New()}
}

// allow takes a token of name's, or says how long one takes to come.
func (l *limiter) allow(name string, now time.Time) (bool, time.Duration) {
	if l.rate.PerSecond <= 0 {
		return true, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byName[name]
	if !ok {
		if l.recent.Len() >= maxCallers {
			oldest := l.recent.Back()
			delete(l.byName, oldest.Value.(*bucket).name)
			l.recent.Remove(oldest)
		}
		e = l.recent.PushFront(&bucket{name, rate.NewLimiter(rate.Limit(l.rate.PerSecond), max(1, l.rate.Burst))})
		l.byName[name] = e
	}
	l.recent.MoveToFront(e)
	b := e.Value.(*bucket)
	if b.AllowN(now, 1) {
		return true, 0
	}
	missing := 1 - b.TokensAt(now)
	return false, time.Duration(missing / l.rate.PerSecond * float64(time.Second))
}

// limitRate refuses a caller that asks too often. The owner is not limited.
func (s *Server) limitRate(ex *exchange) error {
	if ex.who.IsOwner() || ex.rated {
		return nil
	}
	// A time made of the monotonic clock, so that no jump fills or empties a bucket.
	now := time.Unix(1, 0).Add(s.Clock.Since(s.base))
	ok, wait := s.rates.allow(ex.who.String(), now)
	if ok {
		return nil
	}
	ex.retryAfter = int(math.Ceil(wait.Seconds()))
	return cove.Errorf(cove.Overloaded, "too many requests: more than %g a second", s.Rate.PerSecond).
		WithHint("wait %d s", max(1, ex.retryAfter))
}
