package server

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func backupCommand(sess *session.Session) *cobra.Command {
	return session.OnLinux(sess.Showing(&cobra.Command{
		Use:   "backup FILE",
		Short: "Write everything that Cove keeps to a file",
		Long: `Write everything that Cove keeps to FILE: the history, the disks of sandboxes,
images, repositories, certificate authorities, and the records of runs. A server
does it, which is started if none answers. Sandboxes run on; each is frozen while
its own disk is read. FILE has its name only when it is whole: until then, and
after any failure, a file of that name stays as it was.

It holds what sandboxes hold, keys among it, and is readable by its owner alone.
Left out are caches and logs, the configuration, and what lies elsewhere on this
machine: directories that sandboxes have mounted, and images of Docker or Podman.`,
		Example: "  cove backup /var/backups/cove.tar.zst\n  cove restore /var/backups/cove.tar.zst",
		Args:    cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		if sess.Far() {
			return ui.Result{}, elsewhere("copied")
		}
		file, err := filepath.Abs(args[0])
		if err != nil {
			return ui.Result{}, err
		}
		made, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.Backup, error) {
			return client.Backup(ctx, c, file)
		})
		return ui.Result{Value: made, Text: fmt.Sprintf("%s has %s and %s\n", made.File, ui.SizeText(made.Bytes),
			ui.Counted(made.Sandboxes, "sandbox", "sandboxes"))}, err
	}))
}

func restoreCommand(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.Showing(&cobra.Command{
		Use:   "restore FILE",
		Short: "Make an empty home of a backup",
		Long: `Make the home, which must be empty or missing, of a file of "cove backup". All of
the file is read and checked before anything of it is there. Sandboxes that ran
are stopped, with what was on their disks.`,
		Example: "  cove restore /var/backups/cove.tar.zst\n  COVE_HOME=/srv/cove cove restore cove.tar.zst",
		Args:    cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		return d.Restore(cmd.Context(), sess, args[0])
	}))
}
