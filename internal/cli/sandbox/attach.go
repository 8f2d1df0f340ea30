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
		Use:   "attach [SANDBOX]",
		Short: "Look at a sandbox's terminal, and type",
		Long: `Look at the terminal of a sandbox that runs: at the oldest, whose program is its
agent or a shell. Where there is none, it is started.

` + interact.TerminalHelp + "\n\n" + flags.TargetHelp,
		Example: `  cove attach
  cove attach brave-otter --terminal t2
  cove attach brave-otter --list
  cove attach --last --detach-keys ctrl-]`,
		ValidArgsFunction: flags.CompleteSandbox(sess),
		Args:              p.Take,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list:
				return listTerminals(sess, cmd, p, asJSON)
			case asJSON:
				return ui.UsageError(cmd, "--json goes with --list")
			case kill != "":
				return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
					s, err := p.Find(ctx, c)
					if err != nil {
						return err
					}
					return c.KillTerminal(ctx, s.ID, kill)
				})
			}
			return interact.AttachTerminal(sess, cmd, p, keys, client.TerminalOptions{ID: id})
		},
	}
	p.Add(c.Flags())
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
		Use:   "shell [SANDBOX] [-- ARG...]",
		Short: "Start a shell in a sandbox",
		Long: `Start a login shell in a new terminal of a sandbox that runs: bash, or sh where
that is not there, with the arguments after --.

` + interact.TerminalHelp + "\n\n" + flags.TargetHelp,
		Example: `  cove shell
  cove shell brave-otter
  cove shell brave-otter --wd src -- -x`,
		ValidArgsFunction: flags.CompleteSandbox(sess),
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args = args[:n]
			}
			return p.Take(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := client.TerminalOptions{New: true, WorkDir: dir}
			if n := cmd.ArgsLenAtDash(); n >= 0 && len(args) > n {
				// Which shell there is only the sandbox knows.
				o.Args = append([]string{"sh", "-c", `if command -v bash >/dev/null; then exec bash -l "$@"; fi; exec sh -l "$@"`, "sh"}, args[n:]...)
			}
			var err error
			if o.Env, err = flags.Environment(env, sess.Getenv); err != nil {
				return err
			}
			return interact.AttachTerminal(sess, cmd, p, keys, o)
		},
	}
	p.Add(c.Flags())
	interact.AddDetachKeys(c.Flags(), &keys)
	c.Flags().StringVar(&dir, "wd", "", "`DIR` where it begins: relative to the workspace, or absolute")
	c.Flags().StringArrayVarP(&env, "env", "e", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	return c
}

// listTerminals prints the terminals of a sandbox.
func listTerminals(sess *session.Session, cmd *cobra.Command, p flags.Target, asJSON bool) error {
	return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.Find(ctx, c)
		if err != nil {
			return err
		}
		all, err := c.Terminals(ctx, s.ID)
		if err != nil {
			return err
		}
		if asJSON {
			return sess.PrintJSON(api.TerminalList{Terminals: all})
		}
		var rows [][]string
		for _, t := range all {
			state := "runs"
			if t.ExitCode != nil {
				state = fmt.Sprintf("ended (%d)", *t.ExitCode)
			}
			rows = append(rows, []string{t.ID, state, fmt.Sprintf("%dx%d", t.Columns, t.Rows), fmt.Sprint(t.Attached), ui.Ago(time.Since(t.CreatedAt)), ui.Printable(strings.Join(t.Args, " "))})
		}
		return sess.Print(ui.Table([]string{"TERMINAL", "STATE", "SIZE", "ATTACHED", "STARTED", "PROGRAM"}, rows))
	})
}
