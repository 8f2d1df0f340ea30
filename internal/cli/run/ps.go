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

func psCommand(sess *session.Session) *cobra.Command {
	var q client.ListOptions
	var l flags.List
	var labels []string
	all := false
	c := &cobra.Command{
		Use:   "ps",
		Short: "List executions",
		Long: `List the executions that run now, of every process of Cove on this machine;
with -a also those that have ended, newest first.`,
		Example: "  cove ps\n  cove ps -a --language python --since 1h\n  cove kill $(cove ps -q)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			since, err := l.From(time.Now())
			wanted, lerr := cove.ParseLabels(labels)
			if err = cmp.Or(err, lerr, flags.CheckOneOf("--status", string(q.Status), statuses)); err != nil {
				return err
			}
			q.Since, q.Labels = since, wanted
			if !all {
				q.Status = cmp.Or(q.Status, api.StatusRunning)
			}
			return sess.Show(ps(cmd.Context(), sess, q, l.Limit, all))
		},
	}
	f := c.Flags()
	f.BoolVarP(&all, "all", "a", false, "those that have ended too")
	sess.AddQuiet(f)
	f.StringVar(&q.Language, "language", "", "of this `RUNTIME` only")
	f.StringVar((*string)(&q.Status), "status", "", "with this `STATUS` only: "+strings.Join(statuses, ", "))
	f.StringArrayVar(&labels, "label", nil, "with the label `KEY=VALUE` only (repeatable: with all)")
	l.Add(sess, f, "begun")
	return c
}

func ps(ctx context.Context, sess *session.Session, q client.ListOptions, limit int, all bool) (ui.Result, error) {
	peers, err := sess.Peers(ctx)
	if err != nil {
		return ui.Result{}, err
	}
	if len(peers) == 0 && (all || q.Status != api.StatusRunning) {
		b, err := sess.Connect(ctx, false) // nothing runs; the records are still there
		if err != nil {
			return ui.Result{}, err
		}
		peers = []*session.Backend{b}
	}
	id := func(e api.Execution) string { return e.ID }
	found, err := session.Collect(peers, id, func(c *client.Client) ([]api.Execution, error) {
		return session.UpTo(limit, func(cursor string, n int) ([]api.Execution, string, error) {
			q.Cursor, q.Limit = cursor, n
			page, err := c.List(ctx, q)
			return page.Executions, page.NextCursor, err
		})
	})
	for _, p := range peers {
		err = cmp.Or(err, p.Close())
	}
	slices.SortFunc(found, func(a, b api.Execution) int { return b.CreatedAt.Compare(a.CreatedAt) })
	found = found[:min(len(found), limit)]
	now := time.Now()
	headings := []string{"ID", "LANGUAGE", "ENGINE", "STATUS", "EXIT", "BEGAN", "TOOK"}
	return ui.Listing("executions", found, headings, func(e api.Execution) []string {
		exit, duration := "", now.Sub(e.CreatedAt)
		if e.Status != api.StatusRunning {
			exit, duration = strconv.Itoa(exitOf(e, 0)), time.Duration(e.Duration*float64(time.Second))
		}
		status := string(e.Status)
		if e.LimitHit != "" && e.LimitHit != status {
			status += ": " + e.LimitHit
		}
		return []string{e.ID, e.Language, e.Engine, status, exit, ui.Ago(now.Sub(e.CreatedAt)), ui.TimeText(max(duration, 0))}
	}), err
}

var statuses = []string{
	string(api.StatusRunning), string(api.StatusCompleted), string(api.StatusTimeout), string(api.StatusLimited),
	string(api.StatusKilled), string(api.StatusShutdown), string(api.StatusRefused), string(api.StatusFailed),
}
