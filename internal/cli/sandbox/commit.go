package sandbox

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func sandboxGroup(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:     "sandbox",
		Short:   "Make an image of a sandbox",
		Long:    `Make an image of a sandbox. All else that is done with sandboxes has commands of its own: "cove --help".`,
		Example: "  cove sandbox commit brave-otter mine:1",
	}, commitCommand(sess))
}

func commitCommand(sess *session.Session) *cobra.Command {
	var req api.CommitRequest
	c := &cobra.Command{
		Use:   "commit SANDBOX IMAGE",
		Short: "Make an image of what a sandbox has installed",
		Long: `Make an image of what a sandbox with root inside has changed of its own image,
as one more layer, with the configuration of that image. The sandbox is frozen
while its files are copied. Its workspace, its home, what is mounted in it and
temporary files are no part of the image.

"cove run --image IMAGE" runs it, and "cove image save" writes it as an archive.
Needs a server of root's.`,
		Example: `  cove sandbox commit brave-otter mine:1
  cove sandbox commit brave-otter redis --change 'CMD ["redis-server"]' --change 'USER redis'`,
		ValidArgsFunction: flags.CompleteSandbox(sess),
		Args: func(cmd *cobra.Command, args []string) error {
			for i, name := range []string{"SANDBOX", "IMAGE"} {
				if len(args) <= i {
					return ui.UsageError(cmd, "%s is missing", name)
				}
			}
			if len(args) > 2 {
				return ui.UsageError(cmd, "%q is one argument too many", args[2])
			}
			req.Image = args[1]
			return nil
		},
	}
	c.Flags().StringArrayVar(&req.Changes, "change", nil,
		"change the configuration by the `INSTRUCTION` of a Dockerfile: CMD, ENV, USER, … (repeatable)")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (r ui.Result, err error) {
		p := flags.Target{Name: args[0]}
		err = p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
			made, err := c.CommitSandbox(ctx, s.ID, req)
			r = ui.Result{Value: made, Text: made.Name + " " + made.Digest + "\n"}
			return err
		})
		return r, err
	})
}
