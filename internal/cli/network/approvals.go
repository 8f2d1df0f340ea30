package network

import (
	"cmp"
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
	asJSON := false
	c := &cobra.Command{
		Use:   "approvals",
		Short: "List and revoke what has been approved for a policy",
		Long: `List the approvals that are remembered for every sandbox that is started with
the same policy ("cove approve ID --scope policy"), newest first. POLICY is the
beginning of a digest of the policy's rules.`,
		Example: "  cove approvals\n  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args:    ui.UnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return approvals(cmd.Context(), sess, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.AddCommand(&cobra.Command{
		Use:   "revoke ID...",
		Short: "Forget approvals",
		Long: `Forget approvals. What they are about is asked about again at once, in sandboxes
that run, too; requests that are under way go on.`,
		Example: "  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return ui.UsageError(cmd, "ID is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return revoke(cmd.Context(), sess, args) },
	})
	return c
}

func approvals(ctx context.Context, sess *session.Session, asJSON bool) error {
	all := []api.Approval{}
	err := sess.ReadRecords(ctx, func(c *client.Client) error {
		found, err := c.Approvals(ctx)
		all = append(all, found...)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return sess.PrintJSON(api.ApprovalList{Approvals: all})
	}
	var rows [][]string
	now := time.Now()
	for _, p := range all {
		rows = append(rows, []string{p.ID, p.About, p.Rule, p.Policy[:min(len(p.Policy), 12)], p.Who, ui.Ago(now.Sub(p.Time)), p.Until.UTC().Format(time.RFC3339)})
	}
	return sess.Print(ui.Table([]string{"ID", "WHAT", "RULE", "POLICY", "WHO", "GIVEN", "UNTIL"}, rows))
}

func revoke(ctx context.Context, sess *session.Session, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseApprovalID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an approval", id).WithHint("\"cove approvals\" lists them")
		}
	}
	var failed error
	for _, id := range ids {
		err := sess.ReadRecords(ctx, func(c *client.Client) error { return c.Revoke(ctx, id) })
		if err == nil {
			err = sess.Print(id + "\n")
		}
		if err != nil && failed != nil {
			sess.Say.Fail(failed)
		}
		failed = cmp.Or(err, failed)
	}
	return failed
}
