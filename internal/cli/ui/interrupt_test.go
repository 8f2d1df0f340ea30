package ui

import (
	"os"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestExitCodes(t *testing.T) {
	for _, code := range cove.Codes {
		ofAgent := code == cove.AgentFailed || code == cove.SchemaMismatch
		if got := ExitCode(cove.Errorf(code, "x")); ofAgent != (got == ExitAgent) || !ofAgent &&
			(got < exitUsage || got > exitMissing || got == ExitTimeout) {
			t.Errorf("%s becomes %d, which is not one of Cove's own", code, got)
		}
	}
}

// TestSecondSignalLeavesAtOnce: also while the first is still at work.
func TestSecondSignalLeavesAtOnce(t *testing.T) {
	left := make(chan int, 1)
	in := &Interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), Leave: func(code int) { left <- code },
		cancel: func() {}}
	go in.watch()
	busy, begun := make(chan struct{}), make(chan struct{})
	restored := false
	in.BeforeLeaving(func() { restored = true })
	in.OnSignal(func() { close(begun); <-busy })
	in.signals <- syscall.SIGINT
	<-begun
	in.signals <- syscall.SIGINT
	if code := <-left; code != 130 || !restored {
		t.Errorf("left with %d; the terminal was given back: %v", code, restored)
	}
	close(busy)
	in.Settle()
	close(in.done)
}

// TestATerminalThatTakesNothing does not keep a command that leaves at once.
func TestATerminalThatTakesNothing(t *testing.T) {
	left, stuck := make(chan int, 1), make(chan struct{})
	in := &Interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), Leave: func(code int) { left <- code },
		cancel: func() {}}
	go in.watch()
	in.BeforeLeaving(func() { <-stuck })
	in.signals <- syscall.SIGTERM
	in.signals <- syscall.SIGTERM
	if code := <-left; code != 143 {
		t.Errorf("left with %d", code)
	}
	close(stuck)
	close(in.done)
}

// TestSignalsInTurn: each signal has its own turn, and the one after them leaves.
func TestSignalsInTurn(t *testing.T) {
	left, said := make(chan int, 1), make(chan string)
	in := &Interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), Leave: func(code int) { left <- code },
		cancel: func() { t.Error("it gave up") }}
	go in.watch()
	in.OnSignal(func() { said <- "ask" }, func() { said <- "kill" })
	for _, want := range []string{"ask", "kill"} {
		in.signals <- syscall.SIGINT
		if got := <-said; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	in.signals <- syscall.SIGINT
	if code := <-left; code != 130 {
		t.Errorf("left with %d", code)
	}
	in.Settle()
	close(in.done)
}

func TestSignalBeforeAnythingRuns(t *testing.T) {
	in := &Interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), cancel: func() {}}
	in.handle(syscall.SIGTERM)
	ctx, cancel := in.Cover(t.Context())
	defer cancel()
	<-ctx.Done()
	if got := ExitCode(in.Explain(cove.Errorf(cove.Canceled, "x"))); got != 143 {
		t.Errorf("exit code %d", got)
	}
}
