package sandbox

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func diffCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var o client.WorkOptions
	var asJSON, patches bool
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show what a sandbox has changed",
		Long: `Show what a sandbox has changed since it began, what is not committed included.
Git runs inside and sends; what comes is checked, and git on this machine shows
it without running anything of it. Into a file it is a patch as it is; at a
terminal, characters that a terminal would obey are spelled out. With --json it
is the list of files, and with --patch the patch of each.`,
		Example: `  cove diff
  cove diff brave-otter --stat
  cove diff brave-otter --json --patch
  cove diff brave-otter -- docs README.md
  cove diff brave-otter >work.patch`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if patches && !asJSON {
				return ui.UsageError(cmd, "--patch is for --json: without it the output is a patch anyway")
			}
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if asJSON {
					done, err := c.WorkChanges(ctx, s.ID, o.Paths, patches)
					if err != nil {
						return err
					}
					return sess.PrintJSON(done)
				}
				return showWork(sess, func(out io.Writer) error { return c.DiffWork(ctx, s.ID, o, out) })
			})
		},
	}
	addPaths(sess, c, &p, &o.Paths)
	c.Flags().BoolVar(&o.Stat, "stat", false, "which files, and how many lines")
	c.Flags().BoolVar(&o.Names, "name-only", false, "which files")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&patches, "patch", false, "with --json: the patch of each file, too")
	c.MarkFlagsMutuallyExclusive("stat", "name-only", "json")
	return c
}

// addPaths gives a command SANDBOX, and paths after "--".
func addPaths(sess *session.Session, c *cobra.Command, p *flags.Target, paths *[]string) {
	p.AddTo(sess, c)
	c.Use += " [-- PATH...]"
	c.Args = func(cmd *cobra.Command, args []string) error {
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			args, *paths = args[:n], args[n:]
		}
		return p.Take(cmd, args)
	}
}

func logCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var o client.WorkOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "log",
		Short: "Show what a sandbox has committed",
		Long: `Show what a sandbox has committed since it began, newest first; see "cove diff"
for what is not committed.`,
		Example: "  cove log\n  cove log brave-otter --oneline",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
				if asJSON {
					done, err := c.WorkCommits(ctx, s.ID, o.Paths)
					if err != nil {
						return err
					}
					return sess.PrintJSON(done)
				}
				return showWork(sess, func(out io.Writer) error { return c.LogWork(ctx, s.ID, o, out) })
			})
		},
	}
	addPaths(sess, c, &p, &o.Paths)
	c.Flags().BoolVar(&o.Short, "oneline", false, "one line for each commit")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.MarkFlagsMutuallyExclusive("oneline", "json")
	return c
}

// showWork prints what git shows of a sandbox's work: as it is, or so that a terminal obeys nothing in it.
func showWork(sess *session.Session, show func(io.Writer) error) error {
	if !ui.IsTerminal(sess.Out) {
		return show(sess.Out)
	}
	w := &report.PatchWriter{To: sess.Out, Color: ui.Colorful(sess.Out, sess.Getenv)}
	if err := show(w); err != nil {
		return err
	}
	return w.Close()
}
