package cove

// State is a stage of a sandbox's life.
type State string

const (
	StatePreparing  State = "preparing"  // the engine builds the generic part
	StateReady      State = "ready"      // prepared, without an identity yet
	StateRunning    State = "running"    // bound to an identity; processes may run
	StatePaused     State = "paused"     // frozen, memory kept
	StateStopped    State = "stopped"    // no process; files kept
	StateDestroying State = "destroying" // being removed
	StateDestroyed  State = "destroyed"  // gone, nothing left on the host
	StateFailed     State = "failed"     // died or could not be made; still to be destroyed
)

// States lists every state.
var States = []State{
	StatePreparing, StateReady, StateRunning, StatePaused, StateStopped, StateDestroying, StateDestroyed, StateFailed,
}

// transitions is the whole table: from, then the states it may become.
var transitions = map[State][]State{
	StatePreparing:  {StateReady, StateFailed, StateDestroying},
	StateReady:      {StateRunning, StateFailed, StateDestroying},
	StateRunning:    {StatePaused, StateStopped, StateFailed, StateDestroying},
	StatePaused:     {StateRunning, StateStopped, StateFailed, StateDestroying},
	StateStopped:    {StateRunning, StateFailed, StateDestroying},
	StateDestroying: {StateDestroyed, StateFailed},
	StateDestroyed:  nil,
	StateFailed:     {StateDestroying},
}

// CanBecome reports whether a sandbox in state s may become next.
func (s State) CanBecome(next State) bool {
	for _, t := range transitions[s] {
		if t == next {
			return true
		}
	}
	return false
}

// Live reports whether a sandbox in state s may have anything on the host.
func (s State) Live() bool { return s != StateDestroyed }
