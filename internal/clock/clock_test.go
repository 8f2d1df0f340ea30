package clock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReal(t *testing.T) {
	c := Real()
	start := c.Monotonic()
	<-c.After(time.Millisecond)
	<-c.NewTimer(time.Millisecond).C
	done := make(chan struct{})
	c.AfterFunc(time.Millisecond, func() { close(done) })
	<-done
	if d := c.Since(start); d < 3*time.Millisecond {
		t.Errorf("three waits of a millisecond took %v", d)
	}
	if d := time.Since(c.Now()); d > time.Minute {
		t.Errorf("the wall clock is off by %v", d)
	}
	if c.NewTimer(time.Hour).Stop() != true {
		t.Error("a pending timer was not pending")
	}
}

// TestAwait: a channel that is closed counts before a timer that has fired, and before the end of a context.
func TestAwait(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	done := make(chan struct{})
	if err := Await(t.Context(), done, time.After(0)); err != ErrLate {
		t.Errorf("in time for nothing: %v", err)
	}
	if err := Await(gone, done, nil); err != cause {
		t.Errorf("with a context that has ended: %v", err)
	}
	close(done)
	fired := make(chan time.Time)
	close(fired)
	for range 100 {
		if err := Await(gone, done, fired); err != nil {
			t.Fatalf("what is done: %v", err)
		}
	}
}
