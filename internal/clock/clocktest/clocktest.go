// Package clocktest owns a clock for tests, which moves only on request.
package clocktest

import (
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
)

// Manual is a clock for tests that moves only on request.
type Manual struct {
	mu      sync.Mutex
	cond    *sync.Cond // signalled when timers changes
	wall    time.Time
	mono    clock.Instant
	timers  map[*manualTimer]struct{} // pending ones
	ordinal int
}

// NewManual returns a clock that stands at wall.
func NewManual(wall time.Time) *Manual {
	m := &Manual{wall: wall, timers: map[*manualTimer]struct{}{}}
	m.cond = sync.NewCond(&m.mu)
	return m
}

type manualTimer struct {
	at      clock.Instant
	ordinal int // timers due at the same instant fire in the order they were set
	c       chan time.Time
	f       func()
}

// Now implements clock.Clock.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

// Monotonic implements clock.Clock.
func (m *Manual) Monotonic() clock.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mono
}

// Since implements clock.Clock.
func (m *Manual) Since(t clock.Instant) time.Duration { return m.Monotonic().Sub(t) }

// Advance moves both clocks by d and fires due timers in order; each sees the time it was set for. It panics on a
// negative d.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: time does not run backwards; use Jump for the wall clock")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.mono.Add(d)
	for {
		t := m.next(end)
		if t == nil {
			break
		}
		m.move(max(t.at, m.mono))
		m.fire(t)
	}
	m.move(end)
}

// Jump sets the wall clock by d, in either direction, without passing time: no timer fires, no Instant changes.
func (m *Manual) Jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = m.wall.Add(d)
}

// BlockUntil waits until n timers are pending, so that a test advances only
// after the code under test has begun to wait.
func (m *Manual) BlockUntil(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.timers) < n {
		m.cond.Wait()
	}
}

// NewTimer implements clock.Clock.
func (m *Manual) NewTimer(d time.Duration) *clock.Timer {
	t := &manualTimer{c: make(chan time.Time, 1)}
	m.set(t, d)
	return m.handle(t)
}

// After implements clock.Clock.
func (m *Manual) After(d time.Duration) <-chan time.Time { return m.NewTimer(d).C }

// AfterFunc implements clock.Clock.
func (m *Manual) AfterFunc(d time.Duration, f func()) *clock.Timer {
	t := &manualTimer{f: f}
	m.set(t, d)
	return m.handle(t)
}

func (m *Manual) handle(t *manualTimer) *clock.Timer {
	return clock.NewTimer(t.c, func() bool { return m.clear(t) }, func(d time.Duration) bool { return m.set(t, d) })
}

// set arms t and reports whether it was pending.
func (m *Manual) set(t *manualTimer, d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, pending := m.timers[t]
	drain(t)
	m.ordinal++
	t.at, t.ordinal = m.mono.Add(d), m.ordinal
	m.timers[t] = struct{}{}
	if d <= 0 {
		m.fire(t)
	}
	m.cond.Broadcast()
	return pending
}

func (m *Manual) clear(t *manualTimer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, pending := m.timers[t]
	delete(m.timers, t)
	drain(t)
	return pending
}

func drain(t *manualTimer) {
	select {
	case <-t.c:
	default:
	}
}

// next returns the earliest timer due by end; m.mu must be held.
func (m *Manual) next(end clock.Instant) *manualTimer {
	var first *manualTimer
	for t := range m.timers {
		if t.at > end {
			continue
		}
		if first == nil || t.at < first.at || t.at == first.at && t.ordinal < first.ordinal {
			first = t
		}
	}
	return first
}

// move sets the time; m.mu must be held.
func (m *Manual) move(to clock.Instant) {
	m.wall = m.wall.Add(to.Sub(m.mono))
	m.mono = to
}

// fire fires t; m.mu must be held.
func (m *Manual) fire(t *manualTimer) {
	delete(m.timers, t)
	if t.f != nil {
		go t.f()
		return
	}
	t.c <- m.wall // has room: t was pending, so the channel is empty
}
