package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// policyChange is "cove policy allow" and "cove policy deny".
func (a *app) policyChange(verb, short, long string, change func(hosts []string) api.NetworkChange) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " EXECUTION HOST[:PORT]...",
		Short:   short,
		Long:    long,
		Example: "  cove policy " + verb + " $(cove ps -q) api.example.com",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError(cmd, "EXECUTION and HOST are needed")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeNetwork(cmd.Context(), args[0], change(args[1:]))
		},
	}
}

func (a *app) policyAllow() *cobra.Command {
	return a.policyChange("allow", "Let a running execution reach more",
		"Let a running execution reach a host, *.HOST, an address or a range, at once.\nWhat its policy denies stays denied.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Allow: hosts} })
}

func (a *app) policyDeny() *cobra.Command {
	return a.policyChange("deny", "Let a running execution reach less",
		"Let a running execution not reach a host, *.HOST, an address or a range any\nmore, whatever allows it. Connections there are cut.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Deny: hosts} })
}

// changeNetwork asks one process of Cove after the other; only the one that
// runs the execution can.
func (a *app) changeNetwork(ctx context.Context, id string, change api.NetworkChange) error {
	if _, err := cove.ParseExecutionID(id); err != nil {
		return idError(id)
	}
	peers, err := a.peers(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	return whoeverRuns(peers, id, func(p *backend) error {
		_, err := p.client.ChangeNetwork(ctx, id, change)
		return err
	})
}
