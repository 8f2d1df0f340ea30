package httpapi

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
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
