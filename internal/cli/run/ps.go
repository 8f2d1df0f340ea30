package run

import (
	"cmp"
	"context"
	"slices"
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

type psOptions struct {
	all      bool
	quiet    bool
	language string
	status   string
	labels   []string
	flags.List
}

func psCommand(sess *session.Session) *cobra.Command {
	var o psOptions
	c := &cobra.Command{
		Use:   "ps",
		Short: "List executions",
		Long: `List the executions that run now, of every process of Cove on this machine;
with -a also those that have ended, newest first.`,
		Example: "  cove ps\n  cove ps -a --language python --since 1h\n  cove kill $(cove ps -q)",
		Args:    ui.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return ps(cmd.Context(), sess, o) },
	}
	f := c.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "those that have ended too")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print ids only")
	f.StringVar(&o.language, "language", "", "of this `RUNTIME` only")
	f.StringVar(&o.status, "status", "", "with this `STATUS` only: "+strings.Join(statuses, ", "))
	f.StringArrayVar(&o.labels, "label", nil, "with the label `KEY=VALUE` only (repeatable: with all)")
	o.List.Add(f, "begun")
	return c
}

func ps(ctx context.Context, sess *session.Session, o psOptions) error {
	query, err := o.query(time.Now())
	if err != nil {
		return err
	}
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	if len(peers) == 0 && (o.all || o.status != "" && o.status != string(api.StatusRunning)) {
		b, err := sess.Connect(ctx, false) // nothing runs; the records are still there
		if err != nil {
			return err
		}
		peers = []*session.Backend{b}
	}
	all, err := session.Collect(peers, func(e api.Execution) string { return e.ID },
		func(c *client.Client) ([]api.Execution, error) { return listUpTo(ctx, c, query, o.Limit) })
	for _, p := range peers {
		err = cmp.Or(err, p.Close())
	}
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b api.Execution) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all = all[:min(len(all), o.Limit)]
	l := executionListing(time.Now())
	if o.quiet {
		return sess.Show(l.Names(all, func(e api.Execution) string { return e.ID }), o.JSON)
	}
	return sess.Show(l.Result(all), o.JSON)
}

func (o psOptions) query(now time.Time) (client.ListOptions, error) {
	q := client.ListOptions{Language: o.language, Status: api.Status(o.status)}
	if !o.all && o.status == "" {
		q.Status = api.StatusRunning
	}
	since, err := o.From(now)
	labels, lerr := cove.ParseLabels(o.labels)
	q.Since, q.Labels = since, labels
	return q, cmp.Or(err, lerr, flags.CheckOneOf("--status", o.status, statuses))
}

func listUpTo(ctx context.Context, c *client.Client, q client.ListOptions, limit int) ([]api.Execution, error) {
	return session.UpTo(limit, func(cursor string, n int) ([]api.Execution, string, error) {
		q.Cursor, q.Limit = cursor, n
		page, err := c.List(ctx, q)
		return page.Executions, page.NextCursor, err
	})
}

func executionListing(now time.Time) ui.Listing[api.Execution] {
	return ui.Listing[api.Execution]{
		Key:      "executions",
		Headings: []string{"ID", "LANGUAGE", "ENGINE", "STATUS", "EXIT", "BEGAN", "TOOK"},
		Row: func(e api.Execution) []string {
			exit, duration := "", now.Sub(e.CreatedAt)
			if e.Status != api.StatusRunning {
				exit, duration = strconv.Itoa(e.ExitCode), time.Duration(e.Duration*float64(time.Second))
			}
			return []string{e.ID, e.Language, e.Engine, summary(e), exit, ui.Ago(now.Sub(e.CreatedAt)),
				ui.TimeText(max(duration, 0))}
		},
	}
}

// statuses are the values that --status of "cove ps" accepts.
var statuses = []string{
	string(api.StatusRunning), string(api.StatusCompleted), string(api.StatusTimeout), string(api.StatusLimited),
	string(api.StatusKilled), string(api.StatusRefused), string(api.StatusFailed),
}

// summary is how an execution ended, in two words.
func summary(e api.Execution) string {
	parts := []string{string(e.Status)}
	if e.LimitHit != "" && e.LimitHit != string(e.Status) {
		parts = append(parts, e.LimitHit)
	}
	return strings.Join(parts, ": ")
}
