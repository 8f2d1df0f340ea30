package cove

import "testing"

// TestTransitions states the whole table, pair by pair.
func TestTransitions(t *testing.T) {
	want := map[[2]State]bool{
		{StatePreparing, StateReady}: true, {StatePreparing, StateFailed}: true, {StatePreparing, StateDestroying}: true,
		{StateReady, StateRunning}: true, {StateReady, StateFailed}: true, {StateReady, StateDestroying}: true,
		{StateRunning, StatePaused}: true, {StateRunning, StateStopped}: true, {StateRunning, StateFailed}: true,
		{StateRunning, StateDestroying}: true,
		{StatePaused, StateRunning}:     true, {StatePaused, StateStopped}: true, {StatePaused, StateFailed}: true,
		{StatePaused, StateDestroying}: true,
		{StateStopped, StateRunning}:   true, {StateStopped, StateFailed}: true, {StateStopped, StateDestroying}: true,
		{StateDestroying, StateDestroyed}: true, {StateDestroying, StateFailed}: true,
		{StateFailed, StateDestroying}: true,
	}
	for _, from := range States {
		for _, to := range States {
			if got := from.CanBecome(to); got != want[[2]State{from, to}] {
				t.Errorf("%s → %s: %v", from, to, got)
			}
		}
		if State("nonsense").CanBecome(from) || from.CanBecome("nonsense") {
			t.Errorf("%s and a state that does not exist", from)
		}
	}
}

// TestEveryStateCanBeDestroyed: no sandbox may get stuck on the host.
func TestEveryStateCanBeDestroyed(t *testing.T) {
	for _, s := range States {
		if s == StateDestroyed || s == StateDestroying {
			continue
		}
		if !s.CanBecome(StateDestroying) {
			t.Errorf("%s cannot be destroyed", s)
		}
	}
}
