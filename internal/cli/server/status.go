package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

// overview is all that goes on.
type overview struct {
	Server     serverState     `json:"server"`
	Approvals  []api.Hold      `json:"approvals"`
	Runs       []api.Run       `json:"runs"`
	Executions []api.Execution `json:"executions"`
	Sandboxes  []api.Sandbox   `json:"sandboxes"`
}

func statusCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "status",
		Short: "Show everything that goes on",
		Long: `Show everything that goes on: what waits for an answer, agents at work, executions of
every process of Cove on this machine, and sandboxes, with their last use. It starts
nothing. "cove server status" tells more of the server.`,
		Example: "  cove status\n  cove status --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		o, err := look(cmd.Context(), sess)
		return o.result(time.Now()), err
	})
}

func look(ctx context.Context, sess *session.Session) (o overview, err error) {
	if o.Server, err = findServer(ctx, sess); err != nil {
		return o, err
	}
	if err := sess.ReadRecords(ctx, func(c *client.Client) error {
		l, err := c.Sandboxes(ctx)
		if code := cove.ErrorCode(err); code == cove.NotFound || code == cove.Unsupported {
			err = nil // an older server
		}
		runs, rerr := c.Runs(ctx, client.RunQuery{Status: api.RunRunning})
		o.Sandboxes, o.Runs = l.Sandboxes, runs.Runs
		return cmp.Or(err, rerr)
	}); err != nil {
		return o, err
	}
	peers, err := sess.Peers(ctx)
	if err != nil {
		return o, err
	}
	defer session.CloseAll(peers)
	if o.Executions, err = session.Collect(peers, func(e api.Execution) string { return e.ID },
		func(c *client.Client) ([]api.Execution, error) {
			page, err := c.List(ctx, client.ListOptions{Status: api.StatusRunning})
			return page.Executions, err
		}); err != nil {
		return o, err
	}
	o.Approvals, err = session.Collect(peers, func(h api.Hold) string { return h.ID },
		func(c *client.Client) ([]api.Hold, error) { return c.Holds(ctx, "") })
	return o, err
}

// result is a table of all, the ones first that wait for a person.
func (o overview) result(now time.Time) ui.Result {
	var rows [][]string
	row := func(kind, name, state string, since time.Time, what string) {
		rows = append(rows, []string{kind, name, state, ui.Ago(now.Sub(since)), what})
	}
	for _, h := range o.Approvals {
		row("approval", h.ID, "waits", h.Since, h.About)
	}
	for _, r := range o.Runs {
		task, _, _ := strings.Cut(strings.TrimSpace(r.Prompt), "\n")
		row("run", r.ID, r.Status, r.StartedAt, strings.TrimSpace(r.Agent+" "+task))
	}
	for _, e := range o.Executions {
		row("execution", e.ID, string(e.Status), e.CreatedAt, e.Language)
	}
	slices.SortStableFunc(o.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
	for _, s := range o.Sandboxes {
		row("sandbox", s.Name, s.State, s.LastUsedAt, flags.RepositoryText(s))
	}
	r := ui.TableOf(o, []string{"KIND", "NAME", "STATE", "SINCE", "WHAT"}, rows)
	if len(rows) == 0 {
		r = ui.Result{Value: o, Text: "nothing goes on\n"}
	}
	switch s := o.Server; {
	case !s.Running:
		r.Notes = append(r.Notes, "no server answers; commands that need one start it")
	case s.Background:
		r.Notes = append(r.Notes, fmt.Sprintf("a server in the background answers, process %d", s.PID))
	default:
		r.Notes = append(r.Notes, fmt.Sprintf("a server answers, process %d", s.PID))
	}
	return r
}
