package agent

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// agentLimits are the limits of a task for which neither flags nor profile set any.
var agentLimits = cove.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 512, Timeout: 30 * time.Minute}

func limitsOf(req api.RunRequest) *api.Limits {
	if req.New == nil {
		return nil
	}
	return req.New.Limits
}

// runText describes in one line how a task has ended, and what it used.
func runText(r api.Run, used cove.Limits) string {
	parts := []string{}
	if r.Status == api.RunFailed && r.ExitCode != nil && *r.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	if r.EndedAt != nil {
		parts = append(parts, ui.TimeText(r.EndedAt.Sub(r.StartedAt)))
	}
	if n := r.Usage.Turns; n > 0 {
		parts = append(parts, ui.Counted(n, "turn", "turns"))
	}
	if u := usedText(r.Usage); u != "" {
		parts = append(parts, u)
	}
	took := ""
	if len(parts) > 0 {
		took = " (" + strings.Join(parts, ", ") + ")"
	}
	switch r.Status {
	case api.RunSucceeded:
		return r.Agent + " has done it" + took
	case api.RunFailed:
		return r.Agent + " has not done it" + took
	case api.RunInterrupted:
		return r.Agent + " was interrupted" + took
	case api.RunLimit:
		return limitText(r.LimitHit, used) + took
	}
	return r.Agent + " has not come to an end" + took
}

// limitText names the limit that ended a task, and the flag that changes it.
func limitText(limit string, used cove.Limits) string {
	switch limit {
	case "turns":
		return report.Stopped("out of turns", "", "--max-turns")
	case "budget":
		return report.Stopped("the budget for models is used up", "", "--budget")
	}
	return cmp.Or(report.Verdict(api.Execution{LimitHit: limit}, used), "stopped by a limit: "+limit)
}

// runError is why a run has not come to its end.
func runError(r api.Run) error {
	if r.Error == nil {
		return cove.Errorf(cove.Internal, "the run %s did not finish, and no reason was recorded", r.ID)
	}
	return &cove.Error{
		Code:    cove.Code(r.Error.Code),
		Message: strings.TrimSuffix(r.Error.Error, " ("+r.Error.Hint+")"),
		Hint:    r.Error.Hint,
	}
}

// exitOfRun is the exit code for a run of an agent that has ended. stopped is
// the signal with which the user interrupted it, or 0.
func exitOfRun(r api.Run, stopped syscall.Signal) int {
	switch r.Status {
	case api.RunSucceeded:
		return 0
	case api.RunFailed:
		return ui.ExitAgent
	case api.RunInterrupted:
		return ui.ExitSignal(cmp.Or(stopped, syscall.SIGINT))
	case api.RunLimit:
		if r.LimitHit == string(cove.LimitTimeout) {
			return ui.ExitTimeout
		}
		return ui.ExitSignal(syscall.SIGKILL)
	}
	return ui.ExitCode(runError(r))
}
