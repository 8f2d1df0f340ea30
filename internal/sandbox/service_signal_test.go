package sandbox

import (
	"syscall"
	"testing"
)

// TestSignalOf: images name signals in several ways, and not all are signals.
func TestSignalOf(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "int": syscall.SIGINT,
		"2": syscall.SIGINT, "Quit": syscall.SIGQUIT, "37": 37, "0": syscall.SIGTERM, "65": syscall.SIGTERM,
		"-9": syscall.SIGTERM, "SIGNOTHING": syscall.SIGTERM} {
		if got := signalOf(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
