package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// pageSize is how many executions are asked for at once.
const pageSize = 100

type psOptions struct {
	all      bool
	quiet    bool
	json     bool
	language string
	status   string
	since    time.Duration
	limit    int
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
	f.StringVar(&o.language, "language", "", "of this runtime only")
	f.StringVar(&o.status, "status", "", "with this status only: running, completed, timeout, limited, killed, refused, failed")
	f.DurationVar(&o.since, "since", 0, "begun within this time only, like 1h")
	f.IntVarP(&o.limit, "limit", "n", 50, "at most so many")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (a *app) ps(ctx context.Context, o psOptions) error {
	if o.limit < 1 {
		return cove.Errorf(cove.InvalidArgument, "--limit %d: it must be at least 1", o.limit)
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
	all, err := collect(ctx, peers, o)
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

// collect asks every peer and merges: they share one store, so that each knows
// the records, and a peer that has just gone is no error.
func collect(ctx context.Context, peers []*backend, o psOptions) ([]api.Execution, error) {
	query := client.ListOptions{Language: o.language, Status: api.Status(o.status)}
	if !o.all && o.status == "" {
		query.Status = api.StatusRunning
	}
	if o.since > 0 {
		query.Since = time.Now().Add(-o.since)
	}
	merged := map[string]api.Execution{}
	var failed error
	answered := false
	for _, p := range peers {
		page, err := listUpTo(ctx, p.client, query, o.limit)
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
	return all[:min(len(all), o.limit)], nil
}

func listUpTo(ctx context.Context, c *client.Client, q client.ListOptions, limit int) ([]api.Execution, error) {
	var all []api.Execution
	for {
		q.Limit = min(pageSize, limit-len(all))
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Executions...)
		if q.Cursor = page.NextCursor; q.Cursor == "" || len(all) >= limit {
			return all, nil
		}
	}
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
