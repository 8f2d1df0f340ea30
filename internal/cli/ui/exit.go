package ui

import (
	"errors"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// Exit codes that are not the program's own. They are those of timeout(1) and of a shell.
const (
	ExitTimeout   = 124 // the wall time ran out
	ExitCove      = 125 // Cove could not do what was asked
	ExitRefused   = 126 // it may not be run
	exitMissing   = 127 // what would run it is not there
	exitSignalled = 128 // plus the signal's number
	ExitUnhealthy = 1   // "cove doctor" found that an invariant cannot be held
	ExitNoServer  = 3   // "cove server status" found none, as service managers say it
	ExitFindings  = 1   // "cove policy check" or "cove policy test" found something
	ExitAgent     = 1   // the agent has not done its task, or failed
)

// exitCodes is the table from an error's code to the exit code; codes that are not in it are exitCove.
var exitCodes = map[cove.Code]int{
	cove.Forbidden:      ExitRefused,
	cove.Unsupported:    ExitRefused,
	cove.RuntimeMissing: exitMissing,
	cove.ImageMissing:   exitMissing,
	cove.AgentFailed:    ExitAgent,
	cove.SchemaMismatch: ExitAgent,
}

func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if i, ok := errors.AsType[*Interrupted](err); ok {
		return ExitSignal(i.Signal)
	}
	if code, ok := exitCodes[cove.ErrorCode(err)]; ok {
		return code
	}
	return ExitCove
}

func ExitSignal(s syscall.Signal) int { return exitSignalled + int(s) }

// Interrupted ends a command that a signal stopped before it had a result.
type Interrupted struct{ Signal syscall.Signal }

func (i *Interrupted) Error() string { return "stopped: " + i.Signal.String() }
