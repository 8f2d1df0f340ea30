package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

// Reference returns the command "cove" with all that are below it, for manual pages and completion; it runs nothing.
func Reference() *cobra.Command {
	root := rootCommand(session.New(Streams{}, os.Getenv))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
