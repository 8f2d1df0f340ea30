package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func attachCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var keys, id, kill string
	var list, asJSON bool
	c := &cobra.Command{
		Use:   "attach",
		Short: "Look at a sandbox's terminal, and type",
		Long: `Look at the terminal of a sandbox that runs: at the oldest, whose program is its
agent or a shell. Where there is none, it is started.

` + interact.TerminalHelp,
		Example: `  cove attach
  cove attach brave-otter --terminal t2
  cove attach brave-otter --list
  cove attach --last --detach-keys ctrl-]`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list:
				return listTerminals(sess, cmd, p, asJSON)
			case asJSON:
				return ui.UsageError(cmd, "--json goes with --list")
			case kill != "":
				return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
					return c.KillTerminal(ctx, s.ID, kill)
				})
			}
			return interact.AttachTerminal(sess, cmd, p, keys, client.TerminalOptions{ID: id})
		},
	}
	p.AddTo(sess, c)
	interact.AddDetachKeys(c.Flags(), &keys)
	c.Flags().StringVarP(&id, "terminal", "t", "", "`ID` of the terminal")
	c.Flags().BoolVar(&list, "list", false, "list the sandbox's terminals instead")
	c.Flags().StringVar(&kill, "kill", "", "end the program of the terminal `ID` instead")
	c.Flags().BoolVar(&asJSON, "json", false, "with --list, print one JSON object")
	return c
}

func shellCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var keys, dir string
	var env []string
	c := &cobra.Command{
		Use:   "shell",
		Short: "Start a shell in a sandbox",
		Long: `Start a login shell in a new terminal of a sandbox that runs: bash, or sh where
that is not there, with the arguments after --.

` + interact.TerminalHelp,
		Example: `  cove shell
  cove shell brave-otter
  cove shell brave-otter --wd src -- -x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.TerminalOptions{New: true, WorkDir: dir}
			if n := cmd.ArgsLenAtDash(); n >= 0 && len(args) > n {
				// Which shell there is only the sandbox knows.
				const shell = `if command -v bash >/dev/null; then exec bash -l "$@"; fi; exec sh -l "$@"`
				o.Args = append([]string{"sh", "-c", shell, "sh"}, args[n:]...)
			}
			var err error
			if o.Env, err = flags.Environment(env, sess.Getenv); err != nil {
				return err
			}
			return interact.AttachTerminal(sess, cmd, p, keys, o)
		},
	}
	p.AddTo(sess, c)
	c.Use += " [-- ARG...]"
	c.Args = func(cmd *cobra.Command, args []string) error {
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			args = args[:n]
		}
		return p.Take(cmd, args)
	}
	interact.AddDetachKeys(c.Flags(), &keys)
	c.Flags().StringVar(&dir, "wd", "", "`DIR` where it begins: relative to the workspace, or absolute")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	return c
}

// listTerminals prints the terminals of a sandbox.
func listTerminals(sess *session.Session, cmd *cobra.Command, p flags.Target, asJSON bool) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		all, err := c.Terminals(ctx, s.ID)
		if err != nil {
			return err
		}
		return sess.Show(ui.Listing[api.Terminal]{
			Key:      "terminals",
			Headings: []string{"TERMINAL", "STATE", "SIZE", "ATTACHED", "STARTED", "PROGRAM"},
			Row: func(t api.Terminal) []string {
				state := "runs"
				if t.ExitCode != nil {
					state = fmt.Sprintf("ended (%d)", *t.ExitCode)
				}
				return []string{t.ID, state, fmt.Sprintf("%dx%d", t.Columns, t.Rows), fmt.Sprint(t.Attached),
					ui.Ago(time.Since(t.CreatedAt)), strings.Join(t.Args, " ")}
			},
		}.Result(all), asJSON)
	})
}
