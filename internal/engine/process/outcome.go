package process

import (
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Outcome is how a program ended.
type Outcome struct {
	guest.Exit
	// Lost is why the exit is not known: the connection to the guest has ended first.
	Lost error
}

// Limit returns the limit of the sandbox that has ended the program by itself, as far as the kernel's and the guest's
// accounting tell; empty for none. A program that succeeds has not been ended by a limit, whatever it ran into on its
// way.
func (o Outcome) Limit(stats engine.Stats) cove.LimitKind {
	failed := o.Lost != nil || o.Code != 0
	switch {
	case o.OutputCapped:
		return cove.LimitOutput
	case failed && stats.OOMKills > 0:
		return cove.LimitOOM
	case failed && (o.Stats.Full() || o.Signal == int(syscall.SIGXFSZ)):
		return cove.LimitDisk
	case failed && stats.PIDsDenied > 0:
		return cove.LimitPIDs
	}
	return ""
}
