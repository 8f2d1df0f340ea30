package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
)

func (a *app) killCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kill ID...",
		Short:   "End running executions",
		Long:    "End running executions at once, whichever process of Cove on this machine runs them.",
		Example: "  cove kill $(cove ps -q)",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "ID is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.kill(cmd.Context(), args) },
	}
}

func (a *app) kill(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseExecutionID(id); err != nil {
			return idError(id)
		}
	}
	peers, err := a.peers(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, id := range ids {
		err := whoeverRuns(peers, id, func(p *backend) error {
			_, err := p.client.Kill(ctx, id)
			return err
		})
		if err != nil {
			if failed != nil {
				a.say.fail(failed)
			}
			failed = err
			continue
		}
		if err := a.print(id + "\n"); err != nil {
			return err
		}
	}
	for _, p := range peers {
		p.close()
	}
	return failed
}

// whoeverRuns asks one peer after the other; only the one that runs the
// execution can do it.
func whoeverRuns(peers []*backend, id string, do func(*backend) error) error {
	var last error = cove.Errorf(cove.NotFound, "no running execution has the id %s", id).WithHint("see \"cove ps\"")
	for _, p := range peers {
		err := do(p)
		if err == nil {
			return nil
		}
		if cove.ErrorCode(last) == cove.NotFound {
			last = err
		}
		if !notHere(err) {
			return err
		}
	}
	return last
}

func idError(id string) error {
	return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an execution", id).WithHint("\"cove ps -a\" lists them")
}
