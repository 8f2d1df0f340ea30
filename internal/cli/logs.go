package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

func (a *app) logsCommand() *cobra.Command {
	var p pick
	var terminal string
	follow := false
	c := &cobra.Command{
		Use:   "logs [ID|SANDBOX]",
		Short: "Print what an execution printed, or a sandbox's terminal shows",
		Long: `Print the output of an execution that has ended: its standard output on
standard output, its errors on standard error. With -f also of one that runs,
whichever process of Cove on this machine runs it: what it has printed so far,
and the rest as it comes. To stop following does not end it.

Of a sandbox that runs, print what its terminal shows and has shown, as plain
text: that of the oldest program that runs, else of the one that ended last. With
-f, go on with each line that is whole, until the program ends; what is written
over comes again.

` + pickHelp,
		Example:           "  cove logs $(cove ps -aq -n 1)\n  cove logs -f $(cove ps -q -n 1)\n  cove logs brave-otter\n  cove logs -f brave-otter\n  cove logs brave-otter --terminal t2",
		ValidArgsFunction: a.completeSandbox,
		Args:              p.of,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(p.name, "ex_") {
				if follow {
					return a.followTerminal(cmd, p, terminal)
				}
				return a.sandboxLogs(cmd, p, terminal)
			}
			if _, err := cove.ParseExecutionID(args[0]); err != nil {
				return idError(args[0])
			}
			if follow {
				return a.follow(cmd.Context(), args[0])
			}
			return a.logs(cmd.Context(), args[0])
		},
	}
	p.add(c.Flags())
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until it ends")
	c.Flags().StringVarP(&terminal, "terminal", "t", "", "`ID` of the sandbox's terminal")
	return c
}

// follow asks one process after the other: the one that runs it has what it
// printed, and when none does there is the record.
func (a *app) follow(ctx context.Context, id string) error {
	peers, err := a.peers(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	out := a.newScreen()
	for _, p := range peers {
		begun := false
		e, err := p.client.Follow(ctx, id, client.Stream{Stdout: out.stdout, Stderr: out.stderr, Started: func(string) { begun = true }})
		if begun {
			out.restore()
		}
		if err == nil {
			a.sayEnd(e)
			return nil
		}
		if begun || !notHere(err) {
			return err
		}
	}
	return a.logs(ctx, id)
}

func (a *app) logs(ctx context.Context, id string) error {
	var e api.Execution
	err := a.readRecords(ctx, func(c *client.Client) (err error) {
		e, err = c.Get(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	if err := a.print(e.Output); err != nil {
		return err
	}
	if _, err := a.Err.WriteString(e.Stderr); err != nil {
		return err
	}
	if e.Status == api.StatusRunning {
		a.say.line("it still runs, and its output is kept when it has ended; \"cove logs -f %s\" shows it as it comes", id)
		return nil
	}
	a.sayEnd(e)
	return nil
}

// sayEnd says what ended an execution, as far as its record tells.
func (a *app) sayEnd(e api.Execution) {
	if t := truncation(e, cove.Limits{}); t != "" {
		a.say.line("%s", t)
	}
	if v := verdict(e, cove.Limits{}); v != "" {
		a.say.line("%s", v)
	}
}
