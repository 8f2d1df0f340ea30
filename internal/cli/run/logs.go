package run

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

func logsCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var terminal string
	follow := false
	c := &cobra.Command{
		Use:   "logs",
		Short: "Print what an execution printed, or a sandbox's terminal shows",
		Long: `Print the output of an execution that has ended: its standard output on
standard output, its errors on standard error. With -f also of one that runs,
whichever process of Cove on this machine runs it: what it has printed so far,
and the rest as it comes. To stop following does not end it.

Of a sandbox that runs, print what its terminal shows and has shown, as plain
text: that of the oldest program that runs, else of the one that ended last. With
-f, go on with each line that is whole, until the program ends; what is written
over comes again.`,
		Example: "  cove logs $(cove ps -aq -n 1)\n  cove logs -f $(cove ps -q -n 1)\n  cove logs brave-otter\n  cove logs -f brave-otter\n  cove logs brave-otter --terminal t2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(p.Name, "ex_") {
				if follow {
					return followTerminal(sess, cmd, p, terminal)
				}
				return sandboxLogs(sess, cmd, p, terminal)
			}
			if _, err := cove.ParseExecutionID(args[0]); err != nil {
				return session.ExecutionIDError(args[0])
			}
			if follow {
				return followExecution(cmd.Context(), sess, args[0])
			}
			return logs(cmd.Context(), sess, args[0])
		},
	}
	p.AddTo(sess, c)
	c.Use = "logs [ID|SANDBOX]"
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until it ends")
	c.Flags().StringVarP(&terminal, "terminal", "t", "", "`ID` of the sandbox's terminal")
	return c
}

// followExecution asks one process after the other: the one that runs it has what it
// printed, and when none does there is the record.
func followExecution(ctx context.Context, sess *session.Session, id string) error {
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	defer session.CloseAll(peers)
	out := sess.NewScreen()
	for _, p := range peers {
		begun := false
		e, err := p.Client.Follow(ctx, id, client.Stream{Stdout: out.Stdout, Stderr: out.Stderr, Started: func(string) { begun = true }})
		if begun {
			out.Restore()
		}
		if err == nil {
			sayEnd(sess, e)
			return nil
		}
		if begun || !session.NotHere(err) {
			return err
		}
	}
	return logs(ctx, sess, id)
}

func logs(ctx context.Context, sess *session.Session, id string) error {
	e, err := session.OfRecords(ctx, sess, func(c *client.Client, ctx context.Context) (api.Execution, error) { return c.Get(ctx, id) })
	if err != nil {
		return err
	}
	if err := sess.Print(e.Output); err != nil {
		return err
	}
	if _, err := sess.Err.WriteString(e.Stderr); err != nil {
		return err
	}
	if e.Status == api.StatusRunning {
		sess.Say.Line("it still runs, and its output is kept when it has ended; \"cove logs -f %s\" shows it as it comes", id)
		return nil
	}
	sayEnd(sess, e)
	return nil
}

// sayEnd says what ended an execution, as far as its record tells.
func sayEnd(sess *session.Session, e api.Execution) {
	if t := report.Truncation(e, cove.Limits{}); t != "" {
		sess.Say.Line("%s", t)
	}
	if v := report.Verdict(e, cove.Limits{}); v != "" {
		sess.Say.Line("%s", v)
	}
}
