package cli

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// Exit codes that are not the program's own. They are those of timeout(1) and
// of a shell.
const (
	exitTimeout   = 124 // the wall time ran out
	exitCove      = 125 // Cove could not do what was asked
	exitRefused   = 126 // it may not be run
	exitMissing   = 127 // what would run it is not there
	exitSignalled = 128 // plus the signal's number
	exitUnhealthy = 1   // "cove doctor" found that an invariant cannot be held
	exitNoServer  = 3   // "cove server status" found none, as service managers say it
	exitFindings  = 1   // "cove policy check" or "cove policy test" found something
	exitAgent     = 1   // the agent has not done its task, or failed
)

// exitCodes is the table from an error's code to the exit code; codes that are
// not in it are exitCove.
var exitCodes = map[cove.Code]int{
	cove.Forbidden:      exitRefused,
	cove.Unsupported:    exitRefused,
	cove.RuntimeMissing: exitMissing,
	cove.ImageMissing:   exitMissing,
	cove.AgentFailed:    exitAgent,
	cove.SchemaMismatch: exitAgent,
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var i *interrupted
	if errors.As(err, &i) {
		return exitSignal(i.signal)
	}
	if code, ok := exitCodes[cove.ErrorCode(err)]; ok {
		return code
	}
	return exitCove
}

func exitSignal(s syscall.Signal) int { return exitSignalled + int(s) }

// exitOf is the exit code for an execution that came to its end. stopped is
// the signal with which the user ended it, or 0.
func exitOf(e api.Execution, stopped syscall.Signal) int {
	switch {
	case stopped != 0 && e.Status == api.StatusKilled:
		return exitSignal(stopped)
	case e.Status == api.StatusTimeout:
		return exitTimeout
	case e.Status == api.StatusRefused:
		return exitRefused
	case e.Status == api.StatusFailed:
		return exitCove
	case e.ExitCode < 0: // ended from outside: "cove kill", a limit
		return exitSignal(syscall.SIGKILL)
	}
	return e.ExitCode & 0xff
}

// exitOfRun is the exit code for a run of an agent that has ended. stopped is
// the signal with which the user interrupted it, or 0.
func exitOfRun(r api.Run, stopped syscall.Signal) int {
	switch r.Status {
	case api.RunSucceeded:
		return 0
	case api.RunFailed:
		return exitAgent
	case api.RunInterrupted:
		return exitSignal(cmp.Or(stopped, syscall.SIGINT))
	case api.RunLimit:
		if r.LimitHit == string(cove.LimitTimeout) {
			return exitTimeout
		}
		return exitSignal(syscall.SIGKILL)
	}
	return exitCode(runError(r))
}
