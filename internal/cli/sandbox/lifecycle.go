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

// request asks the server for the sandbox of an id, or to change it.
type request = func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error)

// sandboxCommand makes a command that prints one sandbox, as do returns it.
func sandboxCommand(sess *session.Session, c *cobra.Command, do request, text func(api.Sandbox) string) *cobra.Command {
	var p flags.Target
	p.AddTo(sess, c)
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (r ui.Result, err error) {
		err = p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
			s, err := do(c, ctx, s.ID)
			r = ui.Result{Value: s, Text: text(s)}
			return err
		})
		return r, err
	})
}

// changeCommand makes a command that changes one sandbox and prints its name.
func changeCommand(sess *session.Session, c *cobra.Command, change request) *cobra.Command {
	return sandboxCommand(sess, c, change, func(s api.Sandbox) string { return s.Name + "\n" })
}

// StartCommand returns "cove start", which the agents' room extends.
func StartCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:   "start",
		Short: "Start a sandbox that does not run, or work on an issue",
		Long: `Start a sandbox that was stopped, or that has failed. What it is made of is put
right first: its network, its mounts, what a crash has left.`,
		Example: "  cove start brave-otter",
	}, (*client.Client).StartSandbox)
}

func stopCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:   "stop",
		Short: "Stop a sandbox, and keep the work in it",
		Long: `End everything that runs in a sandbox. Its checkout and its home stay, and
"cove start" begins with them.`,
		Example: "  cove stop brave-otter",
	}, (*client.Client).StopSandbox)
}

func pauseCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:     "pause",
		Short:   "Hold everything that runs in a sandbox",
		Long:    "Hold everything that runs in a sandbox where it is, in memory, until \"cove resume\".",
		Example: "  cove pause brave-otter",
	}, (*client.Client).PauseSandbox)
}

func resumeCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:     "resume",
		Short:   "Let a sandbox that was paused go on",
		Long:    "Let everything go on in a sandbox that was paused.",
		Example: "  cove resume brave-otter",
	}, (*client.Client).ResumeSandbox)
}

func renameCommand(sess *session.Session) *cobra.Command {
	name := ""
	c := changeCommand(sess, &cobra.Command{
		Use:     "rename",
		Short:   "Give a sandbox another name",
		Long:    "Give a sandbox another name; its branch keeps its own.",
		Example: "  cove rename brave-otter login-page",
	}, func(c *client.Client, ctx context.Context, id string) (api.Sandbox, error) {
		return c.RenameSandbox(ctx, id, name)
	})
	c.Use += " NAME"
	target := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return ui.UsageError(cmd, "NAME is missing")
		}
		name = args[len(args)-1]
		return target(cmd, args[:len(args)-1])
	}
	return c
}
