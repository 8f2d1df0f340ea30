package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

func (a *app) logsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logs ID",
		Short: "Print what an execution printed",
		Long: `Print the output of an execution that has ended: its standard output on
standard output, its errors on standard error.`,
		Example: "  cove logs $(cove ps -aq -n 1)",
		Args:    exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.logs(cmd.Context(), args[0])
		},
	}
}

func (a *app) logs(ctx context.Context, id string) error {
	if _, err := cove.ParseExecutionID(id); err != nil {
		return idError(id)
	}
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
		a.say.line("it still runs; its output is kept when it has ended")
		return nil
	}
	if t := truncation(e, cove.Limits{}); t != "" {
		a.say.line("%s", t)
	}
	if v := verdict(e, cove.Limits{}); v != "" {
		a.say.line("%s", v)
	}
	return nil
}
