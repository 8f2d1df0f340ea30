package cli

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// policyChange is "cove policy allow" and "cove policy deny".
func (a *app) policyChange(verb, short, long string, change func(hosts []string) api.NetworkChange) *cobra.Command {
	c := &cobra.Command{
		Use:     verb + " EXECUTION|CLIENT HOST[:PORT]...",
		Short:   short,
		Long:    long,
		Example: "  cove policy " + verb + " $(cove ps -q) api.example.com",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError(cmd, "EXECUTION or CLIENT, and HOST, are needed")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeNetwork(cmd, args[0], change(args[1:]))
		},
	}
	c.Flags().String(socketFlag, "", "`PATH` of the gateway's unix socket, for a CLIENT (default: gateway.sock in --run-dir)")
	return c
}

func (a *app) policyAllow() *cobra.Command {
	return a.policyChange("allow", "Let a running execution reach more",
		"Let a running execution, or a client of \"cove gateway\", reach a host, *.HOST, an\naddress or a range, at once. What its policy denies stays denied.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Allow: hosts} })
}

func (a *app) policyDeny() *cobra.Command {
	return a.policyChange("deny", "Let a running execution reach less",
		"Let a running execution, or a client of \"cove gateway\", not reach a host, *.HOST,\nan address or a range any more, whatever allows it. Connections there are cut.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Deny: hosts} })
}

// changeNetwork asks the gateway for one of its clients, or one process of Cove
// after the other: only the one that runs the execution can.
func (a *app) changeNetwork(cmd *cobra.Command, id string, change api.NetworkChange) error {
	ctx := cmd.Context()
	if _, err := cove.ParseExecutionID(id); err != nil {
		gateway, err := a.gatewayClient(cmd)
		if err != nil {
			return err
		}
		defer gateway.Close()
		_, err = gateway.ChangeGatewayClient(ctx, id, change)
		return err
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
