package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

// Reference returns the command "cove" with all that are below it, for manual pages and completion; it runs nothing.
func Reference() *cobra.Command {
	sess := session.New(Streams{}, os.Getenv)
	root := rootCommand(sess, nil)
	addCompletion(sess, root, nil)
	return root
}
