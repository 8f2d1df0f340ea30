package cli

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// policyChange is "cove policy allow" and "cove policy deny".
func (a *app) policyChange(verb, short, long string, change func(hosts []string) api.NetworkChange) *cobra.Command {
	c := &cobra.Command{
		Use:     verb + " SANDBOX|EXECUTION|CLIENT HOST[:PORT]...",
		Short:   short,
		Long:    long,
		Example: "  cove policy " + verb + " brave-otter api.example.com\n  cove policy " + verb + " $(cove ps -q) api.example.com",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError(cmd, "SANDBOX, EXECUTION or CLIENT, and HOST, are needed")
			}
			return nil
		},
		ValidArgsFunction: a.completeSandbox,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeNetwork(cmd, args[0], change(args[1:]))
		},
	}
	c.Flags().String(socketFlag, "", "`PATH` of the gateway's unix socket, for a CLIENT (default: gateway.sock in --run-dir)")
	return c
}

func (a *app) policyAllow() *cobra.Command {
	return a.policyChange("allow", "Let a sandbox or a running execution reach more",
		"Let a sandbox, a running execution, or a client of \"cove gateway\", reach a host,\n*.HOST, an address or a range, at once, and a sandbox each time that it is started.\nWhat its policy denies stays denied.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Allow: hosts} })
}

func (a *app) policyDeny() *cobra.Command {
	return a.policyChange("deny", "Let a sandbox or a running execution reach less",
		"Let a sandbox, a running execution, or a client of \"cove gateway\", not reach a\nhost, *.HOST, an address or a range any more, whatever allows it, and a sandbox not\nwhen it is started again either. Connections there are cut.",
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Deny: hosts} })
}

// changeNetwork changes the network of whoever is meant.
func (a *app) changeNetwork(cmd *cobra.Command, name string, change api.NetworkChange) error {
	ctx := cmd.Context()
	return a.aboutNetwork(cmd, name, theirNetwork{
		execution: func(c *client.Client) error { _, err := c.ChangeNetwork(ctx, name, change); return err },
		sandbox:   func(c *client.Client) error { _, err := c.ChangeSandboxNetwork(ctx, name, change); return err },
		gateway:   func(c *client.Client) error { _, err := c.ChangeGatewayClient(ctx, name, change); return err },
	})
}

// theirNetwork is what is to be done about a network, whosever it is.
type theirNetwork struct{ execution, sandbox, gateway func(*client.Client) error }

// aboutNetwork does it for an execution, by its id, or for a sandbox, which one
// process of Cove has; or for a client of "cove gateway".
func (a *app) aboutNetwork(cmd *cobra.Command, name string, do theirNetwork) error {
	ctx := cmd.Context()
	_, err := cove.ParseExecutionID(name)
	isExecution := err == nil
	if isExecution || !cmd.Flags().Changed(socketFlag) {
		peers, err := a.peers(ctx)
		if err != nil {
			return err
		}
		defer func() {
			for _, p := range peers {
				p.close()
			}
		}()
		if isExecution {
			return whoeverRuns(peers, name, func(p *backend) error { return do.execution(p.client) })
		}
		for _, p := range peers {
			err := do.sandbox(p.client)
			if code := cove.ErrorCode(err); code != cove.NotFound && code != cove.Unavailable { // of a process that is no server
				return err
			}
		}
	}
	gateway, err := a.gatewayClient(cmd)
	if cove.ErrorCode(err) == cove.Unavailable && !cmd.Flags().Changed(socketFlag) {
		return cove.Errorf(cove.NotFound, "there is no sandbox %.80q", name).WithHint("\"cove list\" and \"cove ps\" show what there is; a client of \"cove gateway\" is known where that listens: --socket")
	}
	if err != nil {
		return err
	}
	defer gateway.Close()
	return do.gateway(gateway)
}
