package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var runStatuses = []string{
	api.RunRunning, api.RunSucceeded, api.RunFailed, api.RunInterrupted, api.RunLimit, api.RunError,
}

func runsCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "runs",
		Short: "See what agents were given to do, and what became of it",
		Long: `See what agents were given to do: each task is a run, whose record has what the
agent said and did, what left its sandbox and what did not, what was done with
its repository, and what it changed. Records are kept as long as the audit log
(audit.retention).

A run is named by its id, or the beginning of it that no other has; --last is the
one that began last.`,
	}, runsList(sess), runsShow(sess), runsReplay(sess), runsExport(sess), runsInterrupt(sess), runsRemove(sess))
}

func runsList(sess *session.Session) *cobra.Command {
	var q client.RunQuery
	limit := 0
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List runs, newest first",
		Example: "  cove runs list --agent claude --status failed\n  cove runs show $(cove runs list -q -n 1)",
	}
	f := c.Flags()
	f.StringVar(&q.Agent, "agent", "", "of this `AGENT` only")
	f.StringVar(&q.Status, "status", "", "with this `STATUS` only: "+strings.Join(runStatuses, ", "))
	f.StringVar(&q.Sandbox, "sandbox", "", "in the sandbox of this `ID` only")
	f.IntVarP(&limit, "limit", "n", 50, "at most `COUNT`")
	return sess.ShowingList(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		if err := flags.CheckLimit(limit); err != nil {
			return ui.Result{}, err
		}
		if known := strings.Join(runStatuses, ", "); q.Status != "" && !slices.Contains(runStatuses, q.Status) {
			return ui.Result{}, ui.UsageError(cmd, "--status %q: it must be one of %s", q.Status, known)
		}
		all, err := session.OfRecords(cmd.Context(), sess, func(c *client.Client, ctx context.Context) ([]api.Run, error) {
			return session.UpTo(limit, func(cursor string, n int) ([]api.Run, string, error) {
				q.Before, q.Limit = cursor, n
				l, err := c.Runs(ctx, q)
				return l.Runs, l.Next, err
			})
		})
		headings := []string{"ID", "AGENT", "STATUS", "BEGUN", "TOOK", "SANDBOX", "TASK"}
		return ui.Listing("runs", all, headings, func(r api.Run) []string {
			took := "—"
			if r.EndedAt != nil {
				took = ui.TimeText(r.EndedAt.Sub(r.StartedAt))
			}
			asked := r.Prompt
			if r.Interactive {
				asked = "(in a terminal)"
			}
			return []string{r.ID, r.Agent, statusOf(r), ui.Ago(time.Since(r.StartedAt)), took, r.SandboxName,
				beginning(asked, 60)}
		}), err
	})
}

func statusOf(r api.Run) string {
	if r.LimitHit != "" {
		return r.Status + ": " + r.LimitHit
	}
	return r.Status
}

// beginning is at most so many characters of the first line of a text.
func beginning(text string, most int) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most-1]) + "…"
	} else if more {
		return line + " …"
	}
	return line
}

func runsShow(sess *session.Session) *cobra.Command {
	var r runTarget
	c := &cobra.Command{
		Use:     "show",
		Short:   "Show a run: how it ended, what it changed, what left its sandbox",
		Example: "  cove runs show --last",
	}
	r.addTo(c)
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		shown, err := session.OfRecords(cmd.Context(), sess,
			func(c *client.Client, ctx context.Context) (runRecord, error) {
				id, err := r.find(ctx, c)
				if err != nil {
					return runRecord{}, err
				}
				return readRun(ctx, c, id)
			})
		return ui.Result{Value: shown, Text: shown.text()}, err
	})
}

// runRecord is a run with what happened around it.
type runRecord struct {
	api.Run
	Decisions []api.Decision    `json:"decisions"`
	Actions   []api.AuditRecord `json:"actions"`
	// Afterwards has the records of those who took the work over or pushed it.
	Afterwards []api.AuditRecord `json:"afterwards"`
}

const mostShown = 500

func readRun(ctx context.Context, c *client.Client, id string) (r runRecord, err error) {
	if r.Run, err = c.Run(ctx, id); err != nil || r.Sandbox == "" {
		return r, err
	}
	until := time.Time{}
	if r.EndedAt != nil {
		until = r.EndedAt.Add(time.Microsecond)
	}
	of := client.DecisionOptions{Sandbox: r.Sandbox, Since: r.StartedAt, Until: until}
	r.Decisions, err = session.DecisionsUpTo(ctx, c, of, mostShown)
	if err != nil {
		return r, err
	}
	log, err := c.Audit(ctx, client.AuditOptions{Object: r.Sandbox, Since: r.StartedAt, Until: until, Limit: mostShown})
	r.Actions = append(r.Actions, log.Records...) // null, not [], without any
	slices.Reverse(r.Actions)
	if r.EndedAt == nil {
		return r, err
	}
	for _, action := range []string{"sandbox-apply", "sandbox-push"} {
		log, aerr := c.Audit(ctx, client.AuditOptions{Action: action, Object: r.Sandbox, Since: until, Limit: mostShown})
		r.Afterwards, err = append(r.Afterwards, log.Records...), cmp.Or(err, aerr)
	}
	slices.SortFunc(r.Afterwards, func(a, b api.AuditRecord) int { return cmp.Compare(a.Seq, b.Seq) })
	return r, err
}

func (r runRecord) text() string {
	var rows ui.Facts
	rows.Add("Run", r.ID)
	rows.Add("Agent", strings.TrimSpace(r.Agent+" "+r.Version))
	rows.Add("Status", statusOf(r.Run))
	rows.Add("Record", report.RunHistory(r.Run))
	if r.ExitCode != nil {
		rows.Add("Exit code", fmt.Sprint(*r.ExitCode))
	}
	if r.Error != nil {
		rows.Add("Error", r.Error.Error)
		rows.Add("", r.Error.Hint)
	}
	rows.Add("Model", r.Model)
	rows.Add("Profile", r.Profile)
	rows.Add("Directory", r.Directory)
	rows.Add("Sandbox", strings.TrimSpace(r.SandboxName+" "+r.Sandbox))
	rows.Add("Conversation", r.Session)
	rows.Add("Begun", r.StartedAt.Local().Format(time.DateTime)+", by "+r.CreatedBy)
	if r.EndedAt != nil {
		rows.Add("Took", ui.TimeText(r.EndedAt.Sub(r.StartedAt)))
	}
	rows.Add("Used", usedText(r.Usage))
	rows.Add("Recordings", strings.Join(r.Recordings, ", "))
	b := rows.Text()
	section := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			b += "\n" + title + "\n  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
		}
	}
	section("Task", plainLines(r.Prompt))
	section("Result", plainLines(r.Result))
	changes := ""
	for _, c := range r.Changes {
		changes += fmt.Sprintf("%-8s %s +%d -%d\n", c.Change, ui.Printable(c.Path), c.Added, c.Removed)
	}
	section("Changes", changes)
	made := ""
	for _, m := range r.Made {
		made += ui.Printable(m.Detail) + "\n"
	}
	section("Made in mounts", made)
	denied := ""
	for _, d := range r.Decisions {
		if d.Verdict == api.VerdictDeny {
			denied += report.DecisionLine(d)
		}
	}
	section(fmt.Sprintf("Network: %d decisions; not let out:", len(r.Decisions)), denied)
	actions := ""
	for _, action := range r.Actions {
		actions += fmt.Sprintf("%s %s %s\n", action.Action, action.Verdict, ui.Printable(action.Detail))
	}
	section("Actions", actions)
	afterwards := ""
	for _, a := range r.Afterwards {
		afterwards += fmt.Sprintf("%s %s %s\n", a.Time.Local().Format(time.DateTime), a.Verdict, ui.Printable(a.Detail))
	}
	section("Afterwards", afterwards)
	return b
}

func runsExport(sess *session.Session) *cobra.Command {
	var r runTarget
	to := ""
	c := &cobra.Command{
		Use:   "export",
		Short: "Write the whole record of a run as a tar archive",
		Long: `Write the whole record of a run as a tar archive: run.json, messages.ndjson,
stderr.log, decisions.ndjson (what left its sandbox, and what did not),
actions.ndjson (what was done with it, pushes among that), changes.patch where
there are changes, and TERMINAL.cast for the recording of a terminal.`,
		Example: "  cove runs export -o run.tar RUN\n  cove runs export --last | tar -xO run.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" && ui.IsTerminal(sess.Out) {
				return ui.UsageError(cmd, "an archive is not for a terminal: say where to with -o FILE")
			}
			return sess.ReadRecords(cmd.Context(), func(c *client.Client) error {
				id, err := r.find(cmd.Context(), c)
				if err != nil {
					return err
				}
				if to == "" || to == "-" {
					return c.ExportRun(cmd.Context(), id, sess.Out)
				}
				return exportTo(cmd.Context(), c, id, to)
			})
		},
	}
	r.addTo(c)
	c.Flags().StringVarP(&to, "out", "o", "", "write it to `FILE`, and not to standard output")
	ui.OldNames(c.Flags(), map[string]string{"output": "out"})
	return c
}

// exportTo writes a record to a file, which is there whole or not at all.
func exportTo(ctx context.Context, c *client.Client, id, to string) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".cove-export-")
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "%s: %w", to, ui.Cause(err))
	}
	defer os.Remove(f.Name())
	if err = cmp.Or(c.ExportRun(ctx, id, f), f.Close()); err == nil {
		err = os.Rename(f.Name(), to)
	}
	return err
}

func runsInterrupt(sess *session.Session) *cobra.Command {
	var r runTarget
	var kill bool
	c := &cobra.Command{
		Use:     "interrupt",
		Short:   "Ask the agent of a run to stop",
		Long:    `Ask the agent of a run to stop, and end it 15 seconds later if it has not. What it has done stays.`,
		Example: "  cove runs interrupt --last",
	}
	r.addTo(c)
	c.Flags().BoolVar(&kill, "kill", false, "end it at once")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		id := ""
		err := sess.WithServer(cmd, func(ctx context.Context, c *client.Client) (err error) {
			if id, err = r.find(ctx, c); err != nil {
				return err
			}
			return c.InterruptRun(ctx, id, kill)
		})
		return ui.Result{Value: map[string]string{"interrupted": id}}, err
	})
}

func runsRemove(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "remove RUN...",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove records of runs that have ended",
		Long:    `Remove records of runs that have ended. Their sandboxes, if they are still there, stay.`,
		Args:    cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		removed, err := session.OfRecords(cmd.Context(), sess, func(c *client.Client, ctx context.Context) ([]string, error) {
			var removed []string
			for _, id := range args {
				if err := c.RemoveRun(ctx, id); err != nil {
					return removed, err
				}
				removed = append(removed, id)
			}
			return removed, nil
		})
		return ui.Names("removed", removed, strings.Clone), err
	})
}
