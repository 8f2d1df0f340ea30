package network

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// policyChange is "cove policy allow" and "cove policy deny".
func policyChange(sess *session.Session, verb, short, long string,
	change func(hosts []string) api.NetworkChange) *cobra.Command {
	c := &cobra.Command{
		Use:   verb + " SANDBOX|EXECUTION|CLIENT HOST[:PORT]...",
		Short: short,
		Long:  long,
		Example: "  cove policy " + verb + " brave-otter api.example.com\n" +
			"  cove policy " + verb + " $(cove ps -q) api.example.com",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return ui.UsageError(cmd, "SANDBOX, EXECUTION or CLIENT, and HOST, are needed")
			}
			return nil
		},
		ValidArgsFunction: flags.CompleteSandbox(sess),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeNetwork(sess, cmd, args[0], change(args[1:]))
		},
	}
	c.Flags().String(socketFlag, "",
		"`PATH` of the gateway's unix socket, for a CLIENT (default: gateway.sock in --run-dir)")
	return c
}

func policyAllow(sess *session.Session) *cobra.Command {
	return policyChange(sess, "allow", "Let a sandbox or a running execution reach more",
		`Let a sandbox, a running execution, or a client of "cove gateway", reach a host,
*.HOST, an address or a range, at once, and a sandbox each time that it is started.
What its policy denies stays denied.`,
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Allow: hosts} })
}

func policyDeny(sess *session.Session) *cobra.Command {
	return policyChange(sess, "deny", "Let a sandbox or a running execution reach less",
		`Cut a sandbox, a running execution, or a client of "cove gateway", off from a host,
*.HOST, an address or a range, whatever allows it, at once, and a sandbox each time
that it is started. Connections there are cut.`,
		func(hosts []string) api.NetworkChange { return api.NetworkChange{Deny: hosts} })
}

// changeNetwork changes the network of the execution, sandbox or client with that name.
func changeNetwork(sess *session.Session, cmd *cobra.Command, name string, change api.NetworkChange) error {
	ctx := cmd.Context()
	return aboutNetwork(sess, cmd, name, theirNetwork{
		execution: func(c *client.Client) error { _, err := c.ChangeNetwork(ctx, name, change); return err },
		sandbox:   func(c *client.Client) error { _, err := c.ChangeSandboxNetwork(ctx, name, change); return err },
		gateway:   func(c *client.Client) error { _, err := c.ChangeGatewayClient(ctx, name, change); return err },
	})
}

// theirNetwork holds one action on a network for each kind of its owner.
type theirNetwork struct{ execution, sandbox, gateway func(*client.Client) error }

// aboutNetwork performs the action for an execution, by its id, for a sandbox,
// which one process of Cove manages, or for a client of "cove gateway".
func aboutNetwork(sess *session.Session, cmd *cobra.Command, name string, do theirNetwork) error {
	ctx := cmd.Context()
	_, err := cove.ParseExecutionID(name)
	isExecution := err == nil
	if isExecution || !cmd.Flags().Changed(socketFlag) {
		peers, err := sess.Peers(ctx)
		if err != nil {
			return err
		}
		defer session.CloseAll(peers)
		if isExecution {
			return session.AskRunner(peers, name, func(p *session.Backend) error { return do.execution(p.Client) })
		}
		for _, p := range peers {
			err := do.sandbox(p.Client)
			if code := cove.ErrorCode(err); code != cove.NotFound && code != cove.Unavailable { // of a process that is no server
				return err
			}
		}
	}
	gateway, err := gatewayClient(sess, cmd)
	if cove.ErrorCode(err) == cove.Unavailable && !cmd.Flags().Changed(socketFlag) {
		return cove.Errorf(cove.NotFound, "there is no sandbox %.80q", name).
			WithHint("\"cove list\" and \"cove ps\" show what there is; " +
				"for a client of \"cove gateway\" give the gateway's --socket")
	}
	if err != nil {
		return err
	}
	defer gateway.Close()
	return do.gateway(gateway)
}
