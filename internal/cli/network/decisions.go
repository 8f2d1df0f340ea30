package network

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func networkCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "network",
		Short: "See what leaves sandboxes, and what was not let out",
	}, networkLog(sess))
}

type decisionOptions struct {
	follow bool
	denied bool
	host   string
	flags.List
}

func networkLog(sess *session.Session) *cobra.Command {
	var o decisionOptions
	c := &cobra.Command{
		Use:   "log [EXECUTION]",
		Short: "Show what became of attempts to leave sandboxes",
		Long: `Show what became of attempts to leave sandboxes, of every process of Cove that
shares the database, the newest last: requests, connections that were passed
through, and DNS lookups. Attempts that are alike and come at once are one line
with a count. With -f it goes on as they come.

A denied attempt is shown with the rule, the reason, and the command that would
allow it. Queries, headers, bodies and secrets are never recorded: a path has "…"
where it would show one.`,
		Example: `  cove network log $(cove ps -aq -n 1)
  cove network log -f --denied
  cove network log --host api.example.com --since 1h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return ui.UsageError(cmd, "%q is one argument too many", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q := client.DecisionOptions{Host: strings.ToLower(o.host)}
			if o.denied {
				q.Verdict = api.VerdictDeny
			}
			if len(args) > 0 {
				ids, err := session.ExecutionIDs(cmd.Context(), sess, args[0])
				if err != nil {
					return err
				}
				q.Execution = ids[0]
			}
			var err error
			if q.Since, err = o.From(time.Now()); err != nil {
				return err
			}
			if o.follow {
				return sess.WithBackend(cmd,
					func(ctx context.Context, c *client.Client) error { return followDecisions(ctx, sess, c, q, o) })
			}
			all, err := session.OfRecords(cmd.Context(), sess,
				func(c *client.Client, ctx context.Context) ([]api.Decision, error) {
					return session.DecisionsUpTo(ctx, c, q, o.Limit)
				})
			headings := []string{"TIME", "EXECUTION", "VERDICT", "WHAT", "STATUS", "SENT", "RECEIVED", "TOOK", "WHY"}
			return sess.Show(ui.Listing("decisions", all, headings, report.DecisionCells), err)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on as they come")
	f.BoolVar(&o.denied, "denied", false, "what was not let out only")
	f.StringVar(&o.host, "host", "", "to this `HOST` only, a name or an address")
	o.List.Add(sess, f, "begun")
	f.Lookup("json").Usage += "; with -f one on each line"
	return c
}

// followDecisions follows the database, which all processes share: in the server if there is one, else in a daemon of
// its own, which goes on when those that run something end.
func followDecisions(ctx context.Context, sess *session.Session, c *client.Client, q client.DecisionOptions,
	o decisionOptions) error {
	all, err := session.DecisionsUpTo(ctx, c, q, o.Limit)
	if err != nil {
		return err
	}
	last := int64(0)
	show := func(d api.Decision) error {
		last = d.Seq
		if sess.JSON {
			return sess.PrintJSONLine(d)
		}
		return sess.Print(report.DecisionLine(d))
	}
	for _, d := range all {
		if err := show(d); err != nil {
			return err
		}
	}
	return c.FollowDecisions(ctx, q, last, func(d api.Decision) error {
		if d.Time.Before(q.Since) {
			return nil
		}
		return show(d)
	})
}
