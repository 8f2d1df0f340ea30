package network

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func policyShow(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:   "show SANDBOX",
		Short: "Print what a sandbox may reach",
		Long: `Print what a sandbox may reach: its mode, its credentials, and all layers of its
policy, with what was changed since it was made. "cove policy explain URL
--sandbox SANDBOX" says what becomes of one request.`,
		Example:           "  cove policy show brave-otter\n  cove policy show brave-otter --json",
		Args:              ui.Arguments("SANDBOX"),
		ValidArgsFunction: flags.CompleteSandbox(sess),
	}
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		n, err := networkOf(cmd, sess, args[0])
		return ui.Result{Value: n, Text: networkText(n)}, err
	})
}

func networkOf(cmd *cobra.Command, sess *session.Session, sandbox string) (api.SandboxNetwork, error) {
	return session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.SandboxNetwork, error) {
		return c.SandboxNetwork(ctx, sandbox)
	})
}

func networkText(n api.SandboxNetwork) string {
	var rows ui.Facts
	rows.Add("mode", n.Mode)
	rows.Add("repository", n.Repository)
	rows.Add("credentials", strings.Join(n.Credentials, ", "))
	rows.Add("models of", strings.Join(n.Providers, ", "))
	if b := n.Budget; b != nil {
		rows.Add("budget", budgetText(*b))
	}
	var changes []string
	for _, c := range n.Changes {
		for _, host := range c.Allow {
			changes = append(changes, "allow "+host)
		}
		for _, name := range c.Presets {
			changes = append(changes, "allow --preset "+name)
		}
		for _, host := range c.PassThrough {
			changes = append(changes, "allow --pass-through "+host)
		}
		for _, host := range c.Deny {
			changes = append(changes, "deny "+host)
		}
	}
	rows.Add("changed", strings.Join(changes, ", "))
	var b strings.Builder
	b.WriteString(rows.Text())
	for _, p := range n.Policies {
		fmt.Fprintf(&b, "\n# %s\n", ui.Printable(p.Source))
		for line := range strings.Lines(p.Text) {
			b.WriteString(ui.Printable(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	return b.String()
}

// budgetText returns a budget as --model-budget takes it.
func budgetText(b api.ModelBudget) string {
	var parts []string
	if b.Requests > 0 {
		parts = append(parts, fmt.Sprintf("requests=%d", b.Requests))
	}
	if b.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("tokens=%d", b.Tokens))
	}
	if b.Cost > 0 {
		parts = append(parts, fmt.Sprintf("cost=%g", b.Cost))
	}
	return strings.Join(parts, ",")
}

func policyMode(sess *session.Session) *cobra.Command {
	return changeSandbox(sess, &cobra.Command{
		Use:   "mode SANDBOX none|limited|open",
		Short: "Give a sandbox another mode of network",
		Long: `Give a sandbox another mode of network, at once and each time that it is started:
none lets nothing out, limited what its policy allows, open everything but private
addresses and what the policy denies. A sandbox that was started without a network
has one when it is started again.`,
		Example: "  cove policy mode brave-otter open\n  cove policy mode brave-otter none",
		Args:    ui.Arguments("SANDBOX", "MODE"),
	}, func(args []string) api.SandboxNetworkChange { return api.SandboxNetworkChange{Mode: args[1]} })
}

func policyReset(sess *session.Session) *cobra.Command {
	return changeSandbox(sess, &cobra.Command{
		Use:   "reset SANDBOX",
		Short: "Take back what was changed of a sandbox's network",
		Long: `Take back what "cove policy allow", "deny" and "mode" have changed since the
sandbox was made. Connections that are no longer allowed are cut.`,
		Example: "  cove policy reset brave-otter",
		Args:    ui.Arguments("SANDBOX"),
	}, func([]string) api.SandboxNetworkChange { return api.SandboxNetworkChange{Reset: true} })
}

func changeSandbox(sess *session.Session, c *cobra.Command,
	change func(args []string) api.SandboxNetworkChange) *cobra.Command {
	c.ValidArgsFunction = flags.CompleteSandbox(sess)
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		changed, err := session.OfServer(cmd, sess,
			func(c *client.Client, ctx context.Context) (api.NetworkChanged, error) {
				return c.ChangeSandboxNetwork(ctx, args[0], change(args))
			})
		return ui.Result{Value: changed}, err
	})
}

// documentsOf returns the layers of a sandbox's policy. Errors: InvalidArgument.
func documentsOf(n api.SandboxNetwork) (all []*policy.Document, err error) {
	for _, p := range n.Policies {
		d, err := policy.Parse(p.Source, []byte(p.Text))
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}
