package network

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func approvalsCommand(sess *session.Session) *cobra.Command {
	c := sess.Showing(&cobra.Command{
		Use:   "approvals",
		Short: "List and revoke what has been approved for a policy",
		Long: `List the approvals that are remembered for every sandbox that is started with
the same policy ("cove approve ID --scope policy"), newest first. POLICY is the
beginning of a digest of the policy's rules.`,
		Example: "  cove approvals\n  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args:    ui.UnknownCommand,
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfRecords(cmd.Context(), sess, (*client.Client).Approvals)
		now := time.Now()
		return ui.Listing[api.Approval]{Key: "approvals", Headings: []string{"ID", "WHAT", "RULE", "POLICY", "WHO", "GIVEN", "UNTIL"}, Row: func(p api.Approval) []string {
			return []string{p.ID, p.About, p.Rule, p.Policy[:min(len(p.Policy), 12)], p.Who, ui.Ago(now.Sub(p.Time)), p.Until.UTC().Format(time.RFC3339)}
		}}.Result(all), err
	})
	c.AddCommand(&cobra.Command{
		Use:   "revoke ID...",
		Short: "Forget approvals",
		Long: `Forget approvals. What they are about is asked about again at once, in sandboxes
that run, too; requests that are under way go on.`,
		Example: "  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args:    ui.AtLeastOne("ID"),
		RunE:    func(cmd *cobra.Command, args []string) error { return revoke(cmd.Context(), sess, args) },
	})
	return c
}

func revoke(ctx context.Context, sess *session.Session, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseApprovalID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an approval", id).WithHint("\"cove approvals\" lists them")
		}
	}
	return sess.Each(ids, func(id string) error {
		err := sess.ReadRecords(ctx, func(c *client.Client) error { return c.Revoke(ctx, id) })
		if err != nil {
			return err
		}
		return sess.Print(id + "\n")
	})
}
