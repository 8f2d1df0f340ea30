// Package sandbox owns the commands about sandboxes: making and removing them, their terminals and commands, the work
// in them, and what "cove new" builds on: saved flags, profiles and the store of repositories.
package sandbox

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room. "cove start" is apart: StartCommand.
func Commands(sess *session.Session) []*cobra.Command {
	work := []*cobra.Command{listCommand(sess), infoCommand(sess), attachCommand(sess), shellCommand(sess),
		execCommand(sess), forwardCommand(sess), diffCommand(sess), logCommand(sess), applyCommand(sess),
		pushCommand(sess), prCommand(sess)}
	work = append(append(work, pausingCommands(sess)...), renameCommand(sess), limitsCommand(sess), destroyCommand(sess),
		sandboxGroup(sess), pruneCommand(sess), savedCommand(sess), devcontainerCommand(sess), profileCommand(sess),
		repoCommand(sess))
	all := ui.InGroup(ui.GroupStart, newCommand(sess))
	return append(append(all, ui.InGroup(ui.GroupWork, work...)...), setupCommand(sess), gitRemoteCommand(sess))
}
