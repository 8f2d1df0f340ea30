// Package network owns the commands about what leaves sandboxes: policies and their explanation, approvals, decisions,
// certificate authorities, and the gateway for containers that Cove does not start.
package network

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room. d is nil in a program without a daemon.
func Commands(sess *session.Session, d Daemon) []*cobra.Command {
	return ui.InGroup(ui.GroupNetwork, policyCommand(sess), approveCommand(sess), approvalsCommand(sess),
		networkCommand(sess), credentialsCommand(sess), caCommand(sess), gatewayCommand(sess, d))
}
