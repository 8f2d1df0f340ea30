// Package clock owns the notion of time that can be replaced in tests: a wall
// clock for records, and a monotonic one for everything that waits or expires.
//
// The two are different types on purpose. A wall clock jumps (an administrator
// sets it, a laptop wakes up, NTP steps it), so a deadline computed from it
// kills what is alive or keeps what is dead. Whatever has a timeout, a TTL or a
// duration uses [Instant] and timers; [Clock.Now] is for what people read.
package clock

import (
	"time"
)

// Clock tells time and waits.
type Clock interface {
	// Now is the wall clock, for records. It may jump either way.
	Now() time.Time
	// Monotonic is a reading that only moves forward, at the rate of real
	// time. It compares only with readings of the same Clock.
	Monotonic() Instant
	// Since is the time that has passed since a reading.
	Since(t Instant) time.Duration
	// NewTimer sends on its channel once, after d.
	NewTimer(d time.Duration) *Timer
	// After is NewTimer for those who never stop it.
	After(d time.Duration) <-chan time.Time
	// AfterFunc calls f in its own goroutine after d.
	AfterFunc(d time.Duration, f func()) *Timer
}

// Instant is a monotonic reading: the time since an origin that nobody knows.
type Instant time.Duration

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Timer is one pending wait. C is nil for timers of AfterFunc.
type Timer struct {
	C     <-chan time.Time
	stop  func() bool
	reset func(time.Duration) bool
}

// Stop prevents the timer from firing and reports whether it was pending. As
// with time.Timer since Go 1.23, nothing stale is in C afterwards.
func (t *Timer) Stop() bool { return t.stop() }

// Reset makes the timer fire after d from now and reports whether it was pending.
func (t *Timer) Reset(d time.Duration) bool { return t.reset(d) }

// Real is the machine's clock. Its monotonic reading stands still while the
// machine sleeps, like every Go timer, so a sleep is not charged to a timeout.
func Real() Clock { return realClock{origin: time.Now()} }

type realClock struct{ origin time.Time }

func (realClock) Now() time.Time                         { return time.Now() }
func (c realClock) Monotonic() Instant                   { return Instant(time.Since(c.origin)) }
func (c realClock) Since(t Instant) time.Duration        { return c.Monotonic().Sub(t) }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (realClock) NewTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, stop: t.Stop, reset: t.Reset}
}

func (realClock) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return &Timer{stop: t.Stop, reset: t.Reset}
}
