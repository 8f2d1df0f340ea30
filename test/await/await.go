// Package await makes a test wait for what another process or goroutine does, where no event reports it.
package await

import (
	"testing"
	"time"
)

const (
	patience = 2 * time.Minute
	// shortest and longest are the pauses between two questions: a quick event is noticed at once, and a slow one does
	// not keep a processor busy.
	shortest, longest = time.Millisecond, 20 * time.Millisecond
)

// That returns as soon as happened returns true, and fails t when it has not within two minutes. The name of what
// happens completes the message "it does not happen: ".
func That(t testing.TB, what string, happened func() bool) {
	t.Helper()
	pause := shortest
	for end := time.Now().Add(patience); !happened(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			t.Fatalf("it does not happen: %s", what)
		}
		time.Sleep(pause)
	}
}
