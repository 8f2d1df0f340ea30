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

// runStatuses are the statuses that --status accepts.
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

A run is named by its id, or the beginning of it that no other has.`,
	}, runsList(sess), runsShow(sess), runsReplay(sess), runsExport(sess), runsInterrupt(sess), runsRemove(sess))
}

func runsList(sess *session.Session) *cobra.Command {
	var q client.RunQuery
	quiet, limit := false, 0
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List runs, newest first",
		Example: "  cove runs list --agent claude --status failed\n  cove runs show $(cove runs list -q -n 1)",
		Args:    ui.Exactly(),
	}
	f := c.Flags()
	f.StringVar(&q.Agent, "agent", "", "of this `AGENT` only")
	f.StringVar(&q.Status, "status", "", "with this `STATUS` only: "+strings.Join(runStatuses, ", "))
	f.StringVar(&q.Sandbox, "sandbox", "", "in the sandbox of this `ID` only")
	f.IntVarP(&limit, "limit", "n", 50, "at most `COUNT`")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	return sess.Showing(c, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		if err := flags.CheckLimit(limit); err != nil {
			return ui.Result{}, err
		}
		if q.Status != "" && !slices.Contains(runStatuses, q.Status) {
			known := strings.Join(runStatuses, ", ")
			return ui.Result{}, ui.UsageError(cmd, "--status %q: it must be one of %s", q.Status, known)
		}
		all, err := session.OfRecords(cmd.Context(), sess, func(c *client.Client, ctx context.Context) ([]api.Run, error) {
			return session.UpTo(limit, func(cursor string, n int) ([]api.Run, string, error) {
				q.Before, q.Limit = cursor, n
				l, err := c.Runs(ctx, q)
				return l.Runs, l.Next, err
			})
		})
		l := runListing(time.Now())
		if quiet {
			return l.Names(all, func(r api.Run) string { return r.ID }), err
		}
		return l.Result(all), err
	})
}

func runListing(now time.Time) ui.Listing[api.Run] {
	return ui.Listing[api.Run]{
		Key:      "runs",
		Headings: []string{"ID", "AGENT", "STATUS", "BEGUN", "TOOK", "SANDBOX", "TASK"},
		Row: func(r api.Run) []string {
			took := "—"
			if r.EndedAt != nil {
				took = ui.TimeText(r.EndedAt.Sub(r.StartedAt))
			}
			return []string{r.ID, r.Agent, statusOf(r), ui.Ago(now.Sub(r.StartedAt)), took, r.SandboxName,
				beginning(taskOf(r), 60)}
		},
	}
}

// statusOf is how a run stands, and which limit has ended it.
func statusOf(r api.Run) string {
	if r.LimitHit != "" {
		return r.Status + ": " + r.LimitHit
	}
	return r.Status
}

// taskOf returns the task of a run, in words.
func taskOf(r api.Run) string {
	if r.Interactive {
		return "(in a terminal)"
	}
	return r.Prompt
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
	return sess.Showing(&cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: how it ended, what it changed, what left its sandbox",
		Args:  ui.Exactly("RUN"),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		shown, err := session.OfRecords(cmd.Context(), sess,
			func(c *client.Client, ctx context.Context) (runRecord, error) { return readRun(ctx, c, args[0]) })
		return ui.Result{Value: shown, Text: shown.text()}, err
	})
}

// runRecord is a run with what happened around it.
type runRecord struct {
	api.Run
	Decisions []api.Decision    `json:"decisions"`
	Actions   []api.AuditRecord `json:"actions"`
}

// mostShown bounds what is shown of each list.
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
	for i := len(log.Records) - 1; i >= 0; i-- {
		r.Actions = append(r.Actions, log.Records[i])
	}
	return r, err
}

func (r runRecord) text() string {
	rows := [][2]string{{"Run", r.ID}, {"Agent", strings.TrimSpace(r.Agent + " " + r.Version)},
		{"Status", statusOf(r.Run)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	if r.ExitCode != nil {
		add("Exit code", fmt.Sprint(*r.ExitCode))
	}
	if r.Error != nil {
		add("Error", r.Error.Error)
		add("", r.Error.Hint)
	}
	add("Model", r.Model)
	add("Profile", r.Profile)
	add("Directory", r.Directory)
	add("Sandbox", strings.TrimSpace(r.SandboxName+" "+r.Sandbox))
	add("Conversation", r.Session)
	add("Begun", r.StartedAt.Local().Format(time.DateTime)+", by "+r.CreatedBy)
	if r.EndedAt != nil {
		add("Took", ui.TimeText(r.EndedAt.Sub(r.StartedAt)))
	}
	add("Used", usedText(r.Usage))
	add("Recordings", strings.Join(r.Recordings, ", "))
	b := ui.Facts(rows)
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
	return b
}

func runsExport(sess *session.Session) *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "export RUN",
		Short: "Write the whole record of a run as a tar archive",
		Long: `Write the whole record of a run as a tar archive: run.json, messages.ndjson,
stderr.log, decisions.ndjson (what left its sandbox, and what did not),
actions.ndjson (what was done with it, pushes among that), changes.patch where
there are changes, and TERMINAL.cast for the recording of a terminal.`,
		Example: "  cove runs export -o run.tar RUN\n  cove runs export RUN | tar -xO run.json",
		Args:    ui.Exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" && ui.IsTerminal(sess.Out) {
				return ui.UsageError(cmd, "an archive is not for a terminal: say where to with -o FILE")
			}
			return sess.ReadRecords(cmd.Context(), func(c *client.Client) error {
				if to == "" || to == "-" {
					return c.ExportRun(cmd.Context(), args[0], sess.Out)
				}
				return exportTo(cmd.Context(), c, args[0], to)
			})
		},
	}
	c.Flags().StringVarP(&to, "output", "o", "", "write it to `FILE`, and not to standard output")
	return c
}

// exportTo writes a record to a file, which is there whole or not at all.
func exportTo(ctx context.Context, c *client.Client, id, to string) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".cove-export-")
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "%s: %w", to, ui.Cause(err))
	}
	defer os.Remove(f.Name())
	err = c.ExportRun(ctx, id, f)
	err = cmp.Or(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	return err
}

func runsInterrupt(sess *session.Session) *cobra.Command {
	var kill bool
	c := &cobra.Command{
		Use:   "interrupt RUN",
		Short: "Ask the agent of a run to stop",
		Long:  `Ask the agent of a run to stop, and end it 15 seconds later if it has not. What it has done stays.`,
		Args:  ui.Exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.WithServer(cmd,
				func(ctx context.Context, c *client.Client) error { return c.InterruptRun(ctx, args[0], kill) })
		},
	}
	c.Flags().BoolVar(&kill, "kill", false, "end it at once")
	return c
}

func runsRemove(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "rm RUN...",
		Short: "Remove records of runs that have ended",
		Long:  `Remove records of runs that have ended. Their sandboxes, if they are still there, stay.`,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.ReadRecords(cmd.Context(), func(c *client.Client) error {
				for _, id := range args {
					if err := c.RemoveRun(cmd.Context(), id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
