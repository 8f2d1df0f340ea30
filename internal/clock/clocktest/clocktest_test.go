package clocktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func fired(t *clock.Timer) bool {
	select {
	case <-t.C:
		return true
	default:
		return false
	}
}

func TestManualJumpsFireNothing(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, -50 * 365 * 24 * time.Hour} {
		m := NewManual(epoch)
		timer, start := m.NewTimer(time.Minute), m.Monotonic()
		m.Jump(jump)
		if fired(timer) {
			t.Errorf("jump %v: timer fired though no time passed", jump)
		}
		if d := m.Since(start); d != 0 {
			t.Errorf("jump %v: %v passed", jump, d)
		}
		if got := m.Now(); !got.Equal(epoch.Add(jump)) {
			t.Errorf("jump %v: wall clock is %v", jump, got)
		}
		m.Advance(time.Minute)
		if !fired(timer) {
			t.Errorf("jump %v: timer did not fire after its minute", jump)
		}
	}
}

func TestManualFiresInOrderAtTheTimeSet(t *testing.T) {
	m := NewManual(epoch)
	late, early := m.NewTimer(2*time.Second), m.NewTimer(time.Second)
	m.Advance(time.Hour)
	if got := <-early.C; !got.Equal(epoch.Add(time.Second)) {
		t.Errorf("early timer saw %v", got)
	}
	if got := <-late.C; !got.Equal(epoch.Add(2 * time.Second)) {
		t.Errorf("late timer saw %v", got)
	}
}

func TestManualStopAndReset(t *testing.T) {
	m := NewManual(epoch)
	timer := m.NewTimer(time.Second)
	if !timer.Stop() || timer.Stop() {
		t.Error("Stop must report true once")
	}
	m.Advance(time.Minute)
	if fired(timer) {
		t.Error("stopped timer fired")
	}
	if timer.Reset(time.Second) {
		t.Error("Reset of a stopped timer reports pending")
	}
	m.Advance(time.Second)
	if timer.Stop() {
		t.Error("a fired timer is not pending")
	}
	if fired(timer) {
		t.Error("Stop left a stale value")
	}
	if now := m.NewTimer(0); !fired(now) {
		t.Error("a timer of zero fires at once")
	}
}

func TestManualAfterFunc(t *testing.T) {
	m := NewManual(epoch)
	done := make(chan struct{})
	m.AfterFunc(time.Second, func() { close(done) })
	m.BlockUntil(1)
	m.Advance(time.Second)
	<-done
}
