// Package run owns the commands about executions: run, ps, logs, kill and runtimes.
package run

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room.
func Commands(sess *session.Session) []*cobra.Command {
	all := ui.InGroup(ui.GroupRun, runCommand(sess))
	all = append(all, ui.InGroup(ui.GroupExecutions, psCommand(sess), logsCommand(sess), killCommand(sess))...)
	return append(all, ui.InGroup(ui.GroupMachine, runtimesCommand(sess))...)
}
