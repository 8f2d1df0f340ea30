package server

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func auditCommand(sess *session.Session) *cobra.Command {
	var q client.AuditOptions
	var l flags.List
	verify := false
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, and whether the record is intact",
		Long: `Show the audit log, newest first: who did what to which object, with which
verdict and why. Each record carries a hash over itself and the record before,
so that --verify finds the first one that was changed or removed later. Then
the exit code is 1. The log takes at most audit.max_mb: beyond it the oldest
records of the caller that has most go, and a record of the action "prune" says
which. It is part of what --verify checks.`,
		Example: "  cove audit --verdict deny --since 24h\n  cove audit --object $(cove ps -aq -n 1)\n  cove audit --verify",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !verify {
				return sess.Show(audit(cmd.Context(), sess, q, l))
			}
			for _, filter := range []string{"action", "object", "verdict", "since", "limit"} {
				if cmd.Flags().Changed(filter) {
					return ui.UsageError(cmd, "--verify checks the whole log, so it cannot be with --%s", filter)
				}
			}
			return verifyAudit(cmd.Context(), sess)
		},
	}
	f := c.Flags()
	f.StringVar(&q.Action, "action", "",
		"of this `KIND` only: execute, kill, network, approve, revoke, attach, request, sweep, prune")
	f.StringVar(&q.Object, "object", "", "about this only: the `ID` of an execution, a path, a route")
	f.StringVar(&q.Verdict, "verdict", "", "with this `VERDICT` only: "+strings.Join(verdicts, ", "))
	l.Add(sess, f, "recorded")
	f.BoolVar(&verify, "verify", false, "check that no record was changed or removed")
	return c
}

func audit(ctx context.Context, sess *session.Session, q client.AuditOptions, l flags.List) (r ui.Result, err error) {
	q.Since, err = l.From(time.Now())
	if err = cmp.Or(err, flags.CheckOneOf("--verdict", q.Verdict, verdicts)); err != nil {
		return r, err
	}
	all, err := session.OfRecords(ctx, sess, func(c *client.Client, ctx context.Context) ([]api.AuditRecord, error) {
		return session.UpTo(l.Limit, func(cursor string, n int) ([]api.AuditRecord, string, error) {
			q.Cursor, q.Limit = cursor, n
			page, err := c.Audit(ctx, q)
			return page.Records, page.NextCursor, err
		})
	})
	headings := []string{"NO", "TIME", "WHO", "ACTION", "OBJECT", "VERDICT", "DETAIL"}
	return ui.Listing("records", all, headings, func(r api.AuditRecord) []string {
		who := cmp.Or(r.Who, "cove") // itself
		return []string{strconv.FormatInt(r.Seq, 10), r.Time.UTC().Format(time.RFC3339), who, r.Action, r.Object, r.Verdict,
			r.Detail}
	}), err
}

func verifyAudit(ctx context.Context, sess *session.Session) error {
	v, err := session.OfRecords(ctx, sess, (*client.Client).VerifyAudit)
	r := ui.Result{Value: v}
	switch {
	case v.Intact && v.Records == 0:
		r.Text = "the audit log is empty\n"
	case v.Intact:
		known := ui.Counted(int(v.Records), "record, with hash", "records, the last with hash")
		r.Text = "the audit log is intact: " + known + " " + ui.Printable(v.Head) + "\n"
	}
	if err = sess.Show(r, err); err == nil && !v.Intact {
		before := "nothing is intact"
		if v.Records > 0 {
			before = ui.Counted(int(v.Records), "record is", "records are") + " intact"
		}
		sess.Exit = ui.ExitUnhealthy
		sess.Say.Fail(cove.Errorf(cove.Corrupt,
			"the audit log cannot be trusted from record %d on: it was changed or removed", v.Broken).
			WithHint("%s before it; compare with a backup of the database, cove.db", before))
	}
	return err
}

var verdicts = []string{"ok", "deny", "error"}
