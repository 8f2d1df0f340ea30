package network

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

type approveOptions struct {
	deny      bool
	scope     string
	period    string
	all       bool
	execution string
	follow    bool
}

func approveCommand(sess *session.Session) *cobra.Command {
	var o approveOptions
	c := &cobra.Command{
		Use:   "approve [ID]...",
		Short: "See and answer what a policy asks about",
		Long: `List the requests that wait for an answer, because a rule of their policy says
"action: ask", of every process of Cove on this machine and of the clients of a
gateway ("cove gateway"). With ID, allow one; with --deny, deny it. A request
without an answer is denied.

An answer is for the waiting request (--scope once), for every request of its
sandbox that is the same, until the sandbox ends (sandbox), or for every sandbox
with the same policy (policy), for 30 days or as long as --for says; "cove
approvals" lists these. Without --scope a request is allowed once, and denied for
the sandbox.`,
		Example: `  cove approve
  cove approve ho_0123456789abcdefghjkmnpqrs --scope sandbox --for 1h
  cove approve ho_0123456789abcdefghjkmnpqrs --deny
  cove approve --all --execution $(cove ps -q)
  cove approve -f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			if o.execution != "" {
				ids, err := session.ExecutionIDs(cmd.Context(), sess, o.execution)
				if err != nil {
					return err
				}
				o.execution = ids[0]
			}
			switch {
			case len(args) > 0 && o.all:
				return ui.UsageError(cmd, "--all answers everything, so no ID can be with it")
			case (len(args) > 0 || o.all) && (o.follow || sess.JSON):
				return ui.UsageError(cmd, "--follow and --json list what waits, and answer nothing")
			case len(args) == 0 && !o.all && (o.deny || given("scope") || given("for")):
				return ui.UsageError(cmd, "ID is missing, or --all")
			case len(args) > 0 || o.all:
				return answer(cmd.Context(), sess, args, o)
			case o.follow:
				return followHolds(cmd.Context(), sess, o)
			}
			all, err := currentHolds(cmd.Context(), sess, o.execution)
			return sess.Show(holdListing(all, time.Now()), err)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.deny, "deny", false, "deny it")
	f.StringVar(&o.scope, "scope", "", "how far the answer goes, `SCOPE`: once, sandbox or policy")
	f.StringVar(&o.period, "for", "", "how long it counts, `TIME` like 30m, 12h or 7d")
	f.BoolVar(&o.all, "all", false, "answer everything that waits")
	f.StringVar(&o.execution, "execution", "", "of the execution `ID` only")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on listing what comes to wait")
	sess.AddQuiet(f)
	sess.AddJSON(f, "print one JSON object; with --follow, one for each that waits")
	return c
}

func (o approveOptions) answer() (api.HoldAnswer, error) {
	answer := api.HoldAnswer{Allow: !o.deny, Scope: o.scope}
	if o.period != "" {
		d, ok := ui.ParsePeriod(o.period)
		if !ok {
			return answer, cove.Errorf(cove.InvalidArgument, "--for %q is not a time", o.period).
				WithHint("write it like 30m, 12h or 7d")
		}
		answer.For = api.Seconds(d.Seconds())
	}
	return answer, flags.CheckOneOf("--scope", o.scope, []string{"once", "sandbox", "policy"})
}

func answer(ctx context.Context, sess *session.Session, ids []string, o approveOptions) error {
	answer, err := o.answer()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := cove.ParseHoldID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of a waiting request", id).
				WithHint("\"cove approve\" lists them")
		}
	}
	peers, err := askers(ctx, sess)
	if err != nil {
		return err
	}
	defer session.CloseAll(peers)
	if o.all {
		holds, err := collectHolds(ctx, peers, o.execution)
		if err != nil {
			return err
		}
		for _, h := range holds {
			ids = append(ids, h.ID)
		}
	}
	return sess.Each("answered", ids, func(id string) error {
		err := whoeverHolds(peers, id, func(c *client.Client) error { return c.AnswerHold(ctx, id, answer) })
		if o.all && cove.ErrorCode(err) == cove.NotFound {
			return ui.ErrSkipped // it has gone meanwhile, or went with another
		}
		return err
	})
}

// askers are all backends where something may wait: the peers, and a gateway of its own.
func askers(ctx context.Context, sess *session.Session) ([]*session.Backend, error) {
	peers, err := sess.Peers(ctx)
	if err != nil || sess.ServerAddress() != "" {
		return peers, err
	}
	cfg, err := sess.Config()
	if err != nil {
		return peers, err
	}
	path := filepath.Join(cfg.RunDir, gatewaySocket)
	if !session.Answers(ctx, path) {
		return peers, nil
	}
	gateway, err := sess.Dial("unix:" + path)
	return append(peers, gateway), err
}

// whoeverHolds asks one peer after the other; only the one where it waits can do it.
func whoeverHolds(peers []*session.Backend, id string, do func(*client.Client) error) error {
	var last error = cove.Errorf(cove.NotFound, "nothing waits as %s", id).
		WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
	for _, p := range peers {
		err := do(p.Client)
		if err == nil || !session.NotHere(err) {
			return err
		}
		if cove.ErrorCode(err) == cove.NotFound {
			last = err
		}
	}
	return last
}

// collectHolds returns what waits at the peers, the oldest first.
func collectHolds(ctx context.Context, peers []*session.Backend, execution string) ([]api.Hold, error) {
	all, err := session.Collect(peers, func(h api.Hold) string { return h.ID },
		func(c *client.Client) ([]api.Hold, error) { return c.Holds(ctx, execution) })
	slices.SortStableFunc(all, func(a, b api.Hold) int { return a.Since.Compare(b.Since) })
	return all, err
}

func currentHolds(ctx context.Context, sess *session.Session, execution string) ([]api.Hold, error) {
	peers, err := askers(ctx, sess)
	if err != nil {
		return nil, err
	}
	defer session.CloseAll(peers)
	return collectHolds(ctx, peers, execution)
}

const lookAgain = time.Second

// followHolds prints what waits until it is stopped. Processes come and go, so all are asked again and again.
func followHolds(ctx context.Context, sess *session.Session, o approveOptions) error {
	printed := map[string]bool{}
	for {
		all, err := currentHolds(ctx, sess, o.execution)
		if err != nil && !cove.Away(err) {
			return err
		}
		for _, h := range all {
			if printed[h.ID] {
				continue
			}
			printed[h.ID] = true
			if sess.JSON {
				err = sess.PrintJSON(h)
			} else {
				err = sess.Print(fmt.Sprintf("%s  %s, %s left  %s\n",
					h.ID, ui.Printable(report.HoldText(h)), report.LeftText(h, time.Now()), cmp.Or(h.Execution, h.Client)))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

func holdListing(all []api.Hold, now time.Time) ui.Result {
	headings := []string{"ID", "REQUEST", "COUNT", "RULE", "REASON", "SINCE", "LEFT", "OF"}
	return ui.Listing("holds", all, headings, func(h api.Hold) []string {
		return []string{h.ID, report.RequestOf(h), strconv.Itoa(h.Count), h.Rule, h.Reason, ui.Ago(now.Sub(h.Since)),
			report.LeftText(h, now), cmp.Or(h.Execution, h.Client)}
	})
}

func approvalsCommand(sess *session.Session) *cobra.Command {
	c := listingApprovals(sess, &cobra.Command{
		Use:   "approvals",
		Short: "List and revoke what has been approved for a policy",
		Long: `List the approvals that are remembered for every sandbox that is started with
the same policy ("cove approve ID --scope policy"), newest first. POLICY is the
beginning of a digest of the policy's rules.`,
		Example: "  cove approvals\n  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args:    ui.UnknownCommand,
	})
	list := listingApprovals(sess, &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List approvals, newest first",
		Example: "  cove approvals revoke $(cove approvals list -q)",
	})
	revoking := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Forget approvals",
		Long: `Forget approvals. What they are about is asked about again at once, in sandboxes
that run, too; requests that are under way go on.`,
		Example: "  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		RunE:    func(cmd *cobra.Command, args []string) error { return revoke(cmd.Context(), sess, args) },
	}
	sess.AddJSON(revoking.Flags(), "print one JSON object")
	c.AddCommand(list, revoking)
	return c
}

// listingApprovals makes c list approvals: "cove approvals" does so by itself, and below it "list".
func listingApprovals(sess *session.Session, c *cobra.Command) *cobra.Command {
	return sess.ShowingList(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfRecords(cmd.Context(), sess, (*client.Client).Approvals)
		headings := []string{"ID", "WHAT", "RULE", "POLICY", "WHO", "GIVEN", "UNTIL"}
		return ui.Listing("approvals", all, headings, func(p api.Approval) []string {
			return []string{p.ID, p.About, p.Rule, p.Policy[:min(len(p.Policy), 12)], p.Who, ui.Ago(time.Since(p.Time)),
				p.Until.UTC().Format(time.RFC3339)}
		}), err
	})
}

func revoke(ctx context.Context, sess *session.Session, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseApprovalID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an approval", id).
				WithHint("\"cove approvals\" lists them")
		}
	}
	return sess.Each("revoked", ids, func(id string) error {
		return sess.ReadRecords(ctx, func(c *client.Client) error { return c.Revoke(ctx, id) })
	})
}
