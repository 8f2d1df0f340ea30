// Package clock owns time that tests can replace: a wall clock for records, and a monotonic one for everything that
// waits or expires.
//
// The two have different types on purpose. A wall clock jumps (an administrator sets it, a laptop wakes up, NTP steps
// it), so a deadline computed from it may come too early or too late. Timeouts, TTLs and durations use [Instant] and
// timers; [Clock.Now] is for people.
package clock

import (
	"context"
	"errors"
	"time"
)

// Clock tells time and waits.
type Clock interface {
	// Now returns the wall clock, for records. It may jump in either direction.
	Now() time.Time
	// Monotonic returns a reading that only moves forward, at the rate of real time. It compares only with readings of
	// the same Clock.
	Monotonic() Instant
	// Since returns the time since a reading.
	Since(t Instant) time.Duration
	// NewTimer returns a timer that sends on its channel once, after d.
	NewTimer(d time.Duration) *Timer
	// After is NewTimer for callers that never stop it.
	After(d time.Duration) <-chan time.Time
	// AfterFunc calls f in its own goroutine after d.
	AfterFunc(d time.Duration, f func()) *Timer
}

// Instant is a monotonic reading: the time since an arbitrary origin.
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

// NewTimer returns a timer of a clock, which sends on c.
func NewTimer(c <-chan time.Time, stop func() bool, reset func(time.Duration) bool) *Timer {
	return &Timer{C: c, stop: stop, reset: reset}
}

// Stop prevents the timer from firing and reports whether it was pending. As with time.Timer since Go 1.23, C contains
// nothing stale afterwards.
func (t *Timer) Stop() bool { return t.stop() }

// Reset makes the timer fire after d from now and reports whether it was pending.
func (t *Timer) Reset(d time.Duration) bool { return t.reset(d) }

// ErrLate is the error of [Await] for what is not done in time.
var ErrLate = errors.New("its time is up")

// Await waits until done is closed, for as long as ctx and a timer allow; a nil late is no timer. What is done counts,
// be the time up as well: select takes either of two that are ready, and after a pause of this process both may be.
// Errors: ErrLate, and the cause of the end of ctx.
func Await(ctx context.Context, done <-chan struct{}, late <-chan time.Time) (err error) {
	select {
	case <-done:
		return nil
	case <-late:
		err = ErrLate
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	default:
		return err
	}
}

// Real returns the machine's clock. Its monotonic reading stands still while the machine sleeps, like every Go timer,
// so a sleep is not charged to a timeout.
func Real() Clock { return realClock{origin: time.Now()} }

type realClock struct{ origin time.Time }

func (realClock) Now() time.Time                         { return time.Now() }
func (c realClock) Monotonic() Instant                   { return Instant(time.Since(c.origin)) }
func (c realClock) Since(t Instant) time.Duration        { return c.Monotonic().Sub(t) }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (realClock) NewTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return NewTimer(t.C, t.Stop, t.Reset)
}

func (realClock) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return NewTimer(nil, t.Stop, t.Reset)
}
