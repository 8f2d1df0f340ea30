package server

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func backupCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use: "backup FILE", Short: "Write everything that Cove keeps to a file",
		Long: `Write the history, the disks of sandboxes, images, repositories, authorities and
runs to FILE of the server's machine, which has its name only when it is whole.
Sandboxes go on; each is frozen while its own disk is read. FILE holds what they
hold, keys among it. Caches, the configuration and mounted directories are not in it.`,
		Example: "  cove backup /var/backups/cove.tar.zst\n  cove restore /var/backups/cove.tar.zst",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		made, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.Backup, error) {
			file, err := session.ServerPath(args[0])
			if err != nil {
				return api.Backup{}, err
			}
			return client.Backup(ctx, c, file)
		})
		return ui.Result{Value: made, Text: fmt.Sprintf("%s has %s and %s\n", made.File, ui.SizeText(made.Bytes),
			ui.Counted(made.Sandboxes, "sandbox", "sandboxes"))}, err
	})
}

func restoreCommand(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.Showing(&cobra.Command{
		Use: "restore FILE", Short: "Make an empty home of a backup",
		Long: `Make --home, which must be empty or missing, of a file of "cove backup", once all
of that is checked. Sandboxes that ran are stopped, with what was on their disks.`,
		Example: "  cove restore /var/backups/cove.tar.zst\n  cove restore cove.tar.zst --home /srv/cove",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		return d.Restore(cmd.Context(), sess, args[0])
	}))
}
