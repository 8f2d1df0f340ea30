package clock

import (
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
