// Package agent owns the commands about coding agents: giving them tasks, what is shown of a task, the records of runs,
// issues that agents work on, and which agents are installed.
package agent

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room.
func Commands(sess *session.Session) []*cobra.Command {
	return ui.InGroup(ui.GroupAgent, append(taskCommands(sess), runsCommand(sess), agentsCommand(sess))...)
}
