package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

type psOptions struct {
	all      bool
	quiet    bool
	language string
	status   string
	listFlags
}

func (a *app) psCommand() *cobra.Command {
	var o psOptions
	c := &cobra.Command{
		Use:   "ps",
		Short: "List executions",
		Long: `List the executions that run now, of every process of Cove on this machine;
with -a also those that have ended, newest first.`,
		Example: "  cove ps\n  cove ps -a --language python --since 1h\n  cove kill $(cove ps -q)",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.ps(cmd.Context(), o) },
	}
	f := c.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "those that have ended too")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print ids only")
	f.StringVar(&o.language, "language", "", "of this `RUNTIME` only")
	f.StringVar(&o.status, "status", "", "with this `STATUS` only: "+strings.Join(statuses, ", "))
	o.listFlags.add(f, "begun")
	return c
}

func (a *app) ps(ctx context.Context, o psOptions) error {
	query, err := o.query(time.Now())
	if err != nil {
		return err
	}
	peers, err := a.peers(ctx)
	if err != nil {
		return err
	}
	if len(peers) == 0 && (o.all || o.status != "" && o.status != string(api.StatusRunning)) {
		b, err := a.connect(ctx, false) // nobody runs anything; the records are still there
		if err != nil {
			return err
		}
		peers = []*backend{b}
	}
	all, err := collect(ctx, peers, query, o.limit)
	for _, p := range peers {
		if cerr := p.close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return err
	}
	switch {
	case o.json:
		return a.printJSON(api.ExecutionList{Executions: all})
	case o.quiet:
		for _, e := range all {
			if err := a.print(e.ID + "\n"); err != nil {
				return err
			}
		}
		return nil
	}
	return a.print(executionTable(all, time.Now()))
}

func (o psOptions) query(now time.Time) (client.ListOptions, error) {
	q := client.ListOptions{Language: o.language, Status: api.Status(o.status)}
	if !o.all && o.status == "" {
		q.Status = api.StatusRunning
	}
	since, err := o.from(now)
	q.Since = since
	return q, cmp.Or(err, checkOneOf("--status", o.status, statuses))
}

// collect asks every peer and merges: they share one store, so that each knows
// the records, and a peer that has just gone is no error.
func collect(ctx context.Context, peers []*backend, query client.ListOptions, limit int) ([]api.Execution, error) {
	merged := map[string]api.Execution{}
	var failed error
	answered := false
	for _, p := range peers {
		page, err := listUpTo(ctx, p.client, query, limit)
		if err != nil {
			failed = err
			continue
		}
		answered = true
		for _, e := range page {
			merged[e.ID] = e
		}
	}
	if !answered && failed != nil {
		return nil, failed
	}
	all := make([]api.Execution, 0, len(merged))
	for _, e := range merged {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b api.Execution) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all[:min(len(all), limit)], nil
}

func listUpTo(ctx context.Context, c *client.Client, q client.ListOptions, limit int) ([]api.Execution, error) {
	return upTo(limit, func(cursor string, n int) ([]api.Execution, string, error) {
		q.Cursor, q.Limit = cursor, n
		page, err := c.List(ctx, q)
		return page.Executions, page.NextCursor, err
	})
}

func executionTable(all []api.Execution, now time.Time) string {
	var rows [][]string
	for _, e := range all {
		exit, duration := "", now.Sub(e.CreatedAt)
		if e.Status != api.StatusRunning {
			exit, duration = strconv.Itoa(e.ExitCode), time.Duration(e.Duration*float64(time.Second))
		}
		rows = append(rows, []string{e.ID, e.Language, e.Engine, summary(e), exit, ago(now.Sub(e.CreatedAt)), timeText(max(duration, 0))})
	}
	return table([]string{"ID", "LANGUAGE", "ENGINE", "STATUS", "EXIT", "BEGAN", "TOOK"}, rows)
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
