package httpapi

import (
	"container/list"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove/internal/access"
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
	own  map[string]Rate // of callers that have another one

	mu     sync.Mutex
	byName map[string]*list.Element
	recent *list.List // of *bucket, the last seen first
}

type bucket struct {
	name string
	*rate.Limiter
}

func newLimiter(r Rate, own map[string]Rate) *limiter {
	return &limiter{rate: r, own: own, byName: map[string]*list.Element{}, recent: list.New()}
}

// of returns the rate of a caller.
func (l *limiter) of(name string) Rate {
	if r, is := l.own[name]; is {
		return r
	}
	return l.rate
}

// ratesOf returns the rates of keys that have their own, of which twice as many may come at once.
func ratesOf(grants access.Grants) map[string]Rate {
	own := map[string]Rate{}
	for who, g := range grants {
		if g.Rate > 0 {
			own[who.String()] = Rate{PerSecond: g.Rate, Burst: int(math.Ceil(2 * g.Rate))}
		}
	}
	return own
}

// allow takes a token of name's, or says how long one takes to come.
func (l *limiter) allow(name string, now time.Time) (bool, time.Duration) {
	r := l.of(name)
	if r.PerSecond <= 0 {
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
		e = l.recent.PushFront(&bucket{name, rate.NewLimiter(rate.Limit(r.PerSecond), max(1, r.Burst))})
		l.byName[name] = e
	}
	l.recent.MoveToFront(e)
	b := e.Value.(*bucket)
	if b.AllowN(now, 1) {
		return true, 0
	}
	missing := 1 - b.TokensAt(now)
	return false, time.Duration(missing / r.PerSecond * float64(time.Second))
}
