// Package server owns the commands about this machine's Cove: the server, its
// configuration and audit log, images, what the doctor finds, and the version.
package server

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room.
func Commands(sess *session.Session) []*cobra.Command {
	all := ui.InGroup(ui.GroupRun, serveCommand(sess), serverCommand(sess))
	all = append(all, ui.InGroup(ui.GroupExecutions, auditCommand(sess))...)
	all = append(all,
		ui.InGroup(ui.GroupMachine, imageCommand(sess), doctorCommand(sess), configCommand(sess), devCommand(sess))...)
	return append(all, versionCommand(sess), doctorProbeCommand(sess))
}
