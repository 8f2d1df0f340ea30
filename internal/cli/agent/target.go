package agent

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// runTarget selects the run of a command: the named run, or with --last the one that began last.
type runTarget struct {
	name string // as written; empty when none was
	last bool
}

// addTo gives a command RUN and --last. The completion of RUN comes from its usage line.
func (r *runTarget) addTo(c *cobra.Command) {
	c.Use += " [RUN]"
	c.Args = r.take
	c.Flags().BoolVar(&r.last, "last", false, "the run that began last")
}

func (r *runTarget) take(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return ui.UsageError(cmd, "%q is one argument too many", args[1])
	case len(args) == 0 && !r.last:
		return ui.UsageError(cmd, "RUN is missing, or --last")
	case len(args) == 1 && r.last:
		return ui.UsageError(cmd, "--last is instead of RUN")
	case len(args) == 1:
		r.name = args[0]
	}
	return nil
}

// find returns the id of the run, or the beginning of it as written. Errors: NotFound when there is no run at all.
func (r *runTarget) find(ctx context.Context, c *client.Client) (string, error) {
	if !r.last {
		return r.name, nil
	}
	newest, err := c.Runs(ctx, client.RunQuery{Limit: 1})
	if err != nil {
		return "", err
	}
	if len(newest.Runs) == 0 {
		return "", cove.Errorf(cove.NotFound, "no agent has been given a task yet").
			WithHint("give it one: cove claude PROMPT")
	}
	return newest.Runs[0].ID, nil
}
