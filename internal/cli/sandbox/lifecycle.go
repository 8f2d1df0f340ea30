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

// changeCommand makes a command that changes one sandbox and prints its name.
func changeCommand(sess *session.Session, c *cobra.Command, change func(context.Context, *client.Client, string) (api.Sandbox, error)) *cobra.Command {
	var p flags.Target
	asJSON := false
	c.Use += " [SANDBOX]"
	c.Long += "\n\n" + flags.TargetHelp
	c.ValidArgsFunction = flags.CompleteSandbox(sess)
	c.Args = p.Take
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
			s, err := p.Find(ctx, c)
			if err != nil {
				return err
			}
			if s, err = change(ctx, c, s.ID); err != nil {
				return err
			}
			if asJSON {
				return sess.PrintJSON(s)
			}
			return sess.Print(s.Name + "\n")
		})
	}
	p.Add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// StartCommand returns "cove start", which the agents' room extends.
func StartCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:   "start",
		Short: "Start a sandbox that does not run, or work on an issue",
		Long: `Start a sandbox that was stopped, or that has failed. What it is made of is put
right first: its network, its mounts, what a crash has left.`,
		Example: "  cove start brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.StartSandbox(ctx, id)
	})
}

func stopCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:   "stop",
		Short: "Stop a sandbox, and keep the work in it",
		Long: `End everything that runs in a sandbox. Its checkout and its home stay, and
"cove start" begins with them.`,
		Example: "  cove stop brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.StopSandbox(ctx, id)
	})
}

func pauseCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:     "pause",
		Short:   "Hold everything that runs in a sandbox",
		Long:    "Hold everything that runs in a sandbox where it is, in memory, until \"cove resume\".",
		Example: "  cove pause brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.PauseSandbox(ctx, id)
	})
}

func resumeCommand(sess *session.Session) *cobra.Command {
	return changeCommand(sess, &cobra.Command{
		Use:     "resume",
		Short:   "Let a sandbox that was paused go on",
		Long:    "Let everything go on in a sandbox that was paused.",
		Example: "  cove resume brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.ResumeSandbox(ctx, id)
	})
}

func renameCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	asJSON := false
	name := ""
	c := &cobra.Command{
		Use:               "rename [SANDBOX] NAME",
		Short:             "Give a sandbox another name",
		Long:              "Give a sandbox another name; its branch keeps its own.\n\n" + flags.TargetHelp,
		Example:           "  cove rename brave-otter login-page",
		ValidArgsFunction: flags.CompleteSandbox(sess),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return ui.UsageError(cmd, "NAME is missing")
			}
			name = args[len(args)-1]
			return p.Take(cmd, args[:len(args)-1])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := p.Find(ctx, c)
				if err != nil {
					return err
				}
				if s, err = c.RenameSandbox(ctx, s.ID, name); err != nil {
					return err
				}
				if asJSON {
					return sess.PrintJSON(s)
				}
				return sess.Print(s.Name + "\n")
			})
		},
	}
	p.Add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
