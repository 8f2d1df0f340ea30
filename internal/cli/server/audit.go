package server

import (
	"cmp"
	"context"
	"fmt"
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

type auditOptions struct {
	action  string
	object  string
	verdict string
	verify  bool
	flags.List
}

func auditCommand(sess *session.Session) *cobra.Command {
	var o auditOptions
	c := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, and whether the record is intact",
		Long: `Show the audit log, newest first: who did what to which object, with which
verdict and why. Each record carries a hash over itself and the record before,
so that --verify finds the first one that was changed or removed later. Then
the exit code is 1.`,
		Example: "  cove audit --verdict deny --since 24h\n  cove audit --object $(cove ps -aq -n 1)\n  cove audit --verify",
		Args:    ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.verify {
				return audit(cmd.Context(), sess, o)
			}
			for _, filter := range []string{"action", "object", "verdict", "since", "limit"} {
				if cmd.Flags().Changed(filter) {
					return ui.UsageError(cmd, "--verify checks the whole log, so it cannot be with --%s", filter)
				}
			}
			return verifyAudit(cmd.Context(), sess, o.JSON)
		},
	}
	f := c.Flags()
	f.StringVar(&o.action, "action", "",
		"of this `KIND` only: execute, kill, network, approve, revoke, attach, request, sweep")
	f.StringVar(&o.object, "object", "", "about this only: the `ID` of an execution, a path, a route")
	f.StringVar(&o.verdict, "verdict", "", "with this `VERDICT` only: "+strings.Join(verdicts, ", "))
	o.List.Add(f, "recorded")
	f.BoolVar(&o.verify, "verify", false, "check that no record was changed or removed")
	return c
}

func (o auditOptions) query(now time.Time) (client.AuditOptions, error) {
	since, err := o.From(now)
	return client.AuditOptions{Action: o.action, Object: o.object, Verdict: o.verdict, Since: since},
		cmp.Or(err, flags.CheckOneOf("--verdict", o.verdict, verdicts))
}

func audit(ctx context.Context, sess *session.Session, o auditOptions) error {
	query, err := o.query(time.Now())
	if err != nil {
		return err
	}
	all, err := session.OfRecords(ctx, sess, func(c *client.Client, ctx context.Context) ([]api.AuditRecord, error) {
		return session.UpTo(o.Limit, func(cursor string, n int) ([]api.AuditRecord, string, error) {
			query.Cursor, query.Limit = cursor, n
			page, err := c.Audit(ctx, query)
			return page.Records, page.NextCursor, err
		})
	})
	if err != nil {
		return err
	}
	return sess.Show(ui.Listing[api.AuditRecord]{
		Key:      "records",
		Headings: []string{"NO", "TIME", "WHO", "ACTION", "OBJECT", "VERDICT", "DETAIL"},
		Row: func(r api.AuditRecord) []string {
			who := cmp.Or(r.Who, "cove") // itself
			return []string{strconv.FormatInt(r.Seq, 10), r.Time.UTC().Format(time.RFC3339), who, r.Action, r.Object, r.Verdict,
				r.Detail}
		},
	}.Result(all), o.JSON)
}

func verifyAudit(ctx context.Context, sess *session.Session, asJSON bool) error {
	v, err := session.OfRecords(ctx, sess, (*client.Client).VerifyAudit)
	if err != nil {
		return err
	}
	if asJSON {
		err = sess.PrintJSON(v)
	} else if v.Intact {
		err = sess.Print(intact(v))
	}
	if err == nil && !v.Intact {
		sess.Exit = ui.ExitUnhealthy
		sess.Say.Fail(cove.Errorf(cove.Corrupt,
			"the audit log cannot be trusted from record %d on: it was changed or removed", v.Broken).
			WithHint("%s before it; compare with a backup of the database, cove.db", intactBefore(v.Records)))
	}
	return err
}

func intact(v api.AuditVerification) string {
	switch v.Records {
	case 0:
		return "the audit log is empty\n"
	case 1:
		return fmt.Sprintf("the audit log is intact: 1 record, with hash %s\n", ui.Printable(v.Head))
	}
	return fmt.Sprintf("the audit log is intact: %d records, the last with hash %s\n", v.Records, ui.Printable(v.Head))
}

func intactBefore(records int64) string {
	switch records {
	case 0:
		return "nothing is intact"
	case 1:
		return "1 record is intact"
	}
	return fmt.Sprintf("%d records are intact", records)
}

// verdicts are the values that --verdict of "cove audit" accepts.
var verdicts = []string{"ok", "deny", "error"}
