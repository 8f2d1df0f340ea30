package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// runStatuses are those of runs, as --status takes them.
var runStatuses = []string{api.RunRunning, api.RunSucceeded, api.RunFailed, api.RunInterrupted, api.RunLimit, api.RunError}

func (a *app) runsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "runs",
		Short: "See what agents were given to do, and what became of it",
		Long: `See what agents were given to do: each task is a run, whose record has what the
agent said and did, what left its sandbox and what did not, what was done with
its repository, and what it changed. Records are kept as long as the audit log
(audit.retention).

A run is named by its id, or the beginning of it that no other has.`,
	}, a.runsList(), a.runsShow(), a.runsReplay(), a.runsExport(), a.runsInterrupt(), a.runsRemove())
}

func (a *app) runsList() *cobra.Command {
	var q client.RunQuery
	var quiet, asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List runs, newest first",
		Example: "  cove runs list --agent claude --status failed\n  cove runs show $(cove runs list -q -n 1)",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(q.Limit); err != nil {
				return err
			}
			if err := oneOf(cmd, "status", q.Status, runStatuses); err != nil {
				return err
			}
			limit := q.Limit
			var all []api.Run
			err := a.readRecords(cmd.Context(), func(c *client.Client) (err error) {
				all, err = upTo(limit, func(cursor string, n int) ([]api.Run, string, error) {
					q.Before, q.Limit = cursor, n
					l, err := c.Runs(cmd.Context(), q)
					return l.Runs, l.Next, err
				})
				return err
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(api.RunList{Runs: all})
			case quiet:
				for _, r := range all {
					if err := a.print(r.ID + "\n"); err != nil {
						return err
					}
				}
				return nil
			}
			return a.print(runTable(all, time.Now()))
		},
	}
	f := c.Flags()
	f.StringVar(&q.Agent, "agent", "", "of this `AGENT` only")
	f.StringVar(&q.Status, "status", "", "with this `STATUS` only: "+strings.Join(runStatuses, ", "))
	f.StringVar(&q.Sandbox, "sandbox", "", "in the sandbox of this `ID` only")
	f.IntVarP(&q.Limit, "limit", "n", 50, "at most `COUNT`")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// oneOf refuses the value of a flag that is none of some.
func oneOf(cmd *cobra.Command, flag, value string, all []string) error {
	for _, v := range append(all, "") {
		if v == value {
			return nil
		}
	}
	return usageError(cmd, "--%s %q: it must be one of %s", flag, value, strings.Join(all, ", "))
}

func runTable(all []api.Run, now time.Time) string {
	var rows [][]string
	for _, r := range all {
		took := "—"
		if r.EndedAt != nil {
			took = timeText(r.EndedAt.Sub(r.StartedAt))
		}
		status := r.Status
		if r.LimitHit != "" {
			status += ": " + r.LimitHit
		}
		rows = append(rows, []string{r.ID, r.Agent, status, ago(now.Sub(r.StartedAt)), took, r.SandboxName, beginning(taskOf(r), 60)})
	}
	return table([]string{"ID", "AGENT", "STATUS", "BEGUN", "TOOK", "SANDBOX", "TASK"}, rows)
}

// taskOf is what a run is about, in words.
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

func (a *app) runsShow() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: how it ended, what it changed, what left its sandbox",
		Args:  exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var shown runRecord
			err := a.readRecords(cmd.Context(), func(c *client.Client) (err error) {
				shown, err = readRun(cmd.Context(), c, args[0])
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(shown)
			}
			return a.print(shown.text())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
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
	r.Decisions, err = decisionsUpTo(ctx, c, client.DecisionOptions{Sandbox: r.Sandbox, Since: r.StartedAt, Until: until}, mostShown)
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
	status := r.Status
	if r.LimitHit != "" {
		status += ": " + r.LimitHit
	}
	rows := [][2]string{{"Run", r.ID}, {"Agent", strings.TrimSpace(r.Agent + " " + r.Version)}, {"Status", status}}
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
		add("Took", timeText(r.EndedAt.Sub(r.StartedAt)))
	}
	add("Used", usedText(r.Usage))
	add("Recordings", strings.Join(r.Recordings, ", "))
	b := facts(rows)
	section := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			b += "\n" + title + "\n  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
		}
	}
	section("Task", plainLines(r.Prompt))
	section("Result", plainLines(r.Result))
	changes := ""
	for _, c := range r.Changes {
		changes += fmt.Sprintf("%-8s %s +%d -%d\n", c.Change, printable(c.Path), c.Added, c.Removed)
	}
	section("Changes", changes)
	denied := ""
	for _, d := range r.Decisions {
		if d.Verdict == api.VerdictDeny {
			denied += decisionLine(d)
		}
	}
	section(fmt.Sprintf("Network: %d decisions; not let out:", len(r.Decisions)), denied)
	actions := ""
	for _, action := range r.Actions {
		actions += fmt.Sprintf("%s %s %s\n", action.Action, action.Verdict, printable(action.Detail))
	}
	section("Actions", actions)
	return b
}

type replayOptions struct {
	speed    float64
	terminal string
	json     bool
	verbose  bool
}

// longestPause is how long a replay waits at most between two things.
const longestPause = 3 * time.Second

func (a *app) runsReplay() *cobra.Command {
	var o replayOptions
	c := &cobra.Command{
		Use:   "replay RUN",
		Short: "Play what an agent said and did, or the recording of its terminal",
		Long: `Play what an agent said and did, as it was shown when it happened, or the
recording of its terminal where it had one. Of a run that goes on it follows.
Pauses are those there were, at most three seconds; --speed 0 leaves them out.`,
		Example: "  cove runs replay --speed 4 RUN\n  cove runs replay --json RUN | jq .tool",
		Args:    exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.speed < 0 {
				return usageError(cmd, "--speed %g: it must be 0 or more", o.speed)
			}
			interrupts := watchSignals(a.Out, a.Err)
			defer interrupts.stop()
			ctx, cancel := interrupts.cover(cmd.Context())
			defer cancel()
			return interrupts.explain(a.readRecords(ctx, func(c *client.Client) error { return a.replay(ctx, c, args[0], o) }))
		},
	}
	f := c.Flags()
	f.Float64Var(&o.speed, "speed", 1, "so many times as `FAST`; 0 is without pauses")
	f.StringVar(&o.terminal, "terminal", "", "the recording of this `TERMINAL`")
	f.BoolVar(&o.json, "json", false, "print messages as JSON, one on each line, without pauses")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show everything, however long, and what the agent logged")
	return c
}

func (a *app) replay(ctx context.Context, c *client.Client, id string, o replayOptions) error {
	run, err := c.Run(ctx, id)
	if err != nil {
		return err
	}
	if o.terminal == "" && run.Interactive && len(run.Recordings) > 0 {
		o.terminal = run.Recordings[0]
	}
	if o.terminal != "" {
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(c.RunRecording(ctx, run.ID, o.terminal, pw)) }()
		defer pr.Close()
		return a.playCast(ctx, pr, o.speed)
	}
	pace := pacer{speed: o.speed}
	view := newAgentView(a.Out, func() int {
		if isTerminal(a.Out) {
			return columns(a.Out)
		}
		return 0
	})
	view.color, view.verbose = a.say.color && isTerminal(a.Out), o.verbose
	s := client.RunStream{
		Message: func(m api.Message) error {
			if o.json {
				b, err := json.Marshal(m)
				if err != nil {
					return err
				}
				return a.print(plainJSON(string(b)) + "\n")
			}
			if err := pace.until(ctx, m.Time); err != nil {
				return err
			}
			view.message(m)
			if m.Type == api.MessageResult && m.Content != view.spoken {
				view.text(api.Message{Type: api.MessageThinking, Content: m.Content})
			}
			return nil
		},
		Decision: func(d api.Decision) error {
			if !o.json {
				view.decision(d, a.say)
			}
			return nil
		},
	}
	if o.verbose && !o.json {
		s.Log = func(b []byte) error { view.log(string(b)); return nil }
	}
	ended, err := c.FollowRun(ctx, run.ID, s)
	if err != nil || o.json {
		return err
	}
	view.end()
	a.say.line("%s", runText(ended, cove.Limits{}))
	return nil
}

// pacer waits between things as long as there was between them.
type pacer struct {
	speed float64
	last  time.Time
}

func (p *pacer) until(ctx context.Context, at time.Time) error {
	pause := at.Sub(p.last)
	if p.last.IsZero() {
		pause = 0
	}
	p.last = at
	return p.pause(ctx, pause)
}

func (p *pacer) pause(ctx context.Context, d time.Duration) error {
	if p.speed == 0 || d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(min(time.Duration(float64(d)/p.speed), longestPause)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// playCast plays a recording in the form of asciicast, version 2: a header, and
// then what was shown, with its time. Cove has let pass what is in it before it
// was recorded.
func (a *app) playCast(ctx context.Context, from io.Reader, speed float64) error {
	lines := bufio.NewReader(from)
	if _, err := lines.ReadBytes('\n'); err != nil {
		return err
	}
	pace := pacer{speed: speed}
	for at := 0.0; ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return a.print("\x1b[m\x1b[?1049l\x1b[?25h\n") // whatever it has left behind
		}
		if err != nil {
			return err
		}
		var event []json.RawMessage
		var when float64
		var kind, data string
		if json.Unmarshal(line, &event) != nil || len(event) != 3 || json.Unmarshal(event[0], &when) != nil || json.Unmarshal(event[1], &kind) != nil || json.Unmarshal(event[2], &data) != nil {
			return cove.Errorf(cove.Corrupt, "the recording cannot be read").WithHint("look at it: cove runs export")
		}
		if err := pace.pause(ctx, time.Duration((when-at)*float64(time.Second))); err != nil {
			return err
		}
		if at = when; kind == "o" {
			if err := a.print(data); err != nil {
				return err
			}
		}
	}
}

func (a *app) runsExport() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "export RUN",
		Short: "Write the whole record of a run as a tar archive",
		Long: `Write the whole record of a run as a tar archive: run.json, messages.ndjson,
stderr.log, decisions.ndjson (what left its sandbox, and what did not),
actions.ndjson (what was done with it, pushes among that), changes.patch where
there are changes, and TERMINAL.cast for the recording of a terminal.`,
		Example: "  cove runs export -o run.tar RUN\n  cove runs export RUN | tar -xO run.json",
		Args:    exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" && isTerminal(a.Out) {
				return usageError(cmd, "an archive is not for a terminal: say where to with -o FILE")
			}
			return a.readRecords(cmd.Context(), func(c *client.Client) error {
				if to == "" || to == "-" {
					return c.ExportRun(cmd.Context(), args[0], a.Out)
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
		return cove.Errorf(cove.InvalidArgument, "%s: %w", to, cause(err))
	}
	defer os.Remove(f.Name())
	err = c.ExportRun(ctx, id, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	return err
}

func (a *app) runsInterrupt() *cobra.Command {
	var kill bool
	c := &cobra.Command{
		Use:   "interrupt RUN",
		Short: "Ask the agent of a run to stop",
		Long:  `Ask the agent of a run to stop, and end it 15 seconds later if it has not. What it has done stays.`,
		Args:  exactly("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.lasting(cmd.Context())
			if err != nil {
				return err
			}
			defer b.close()
			return b.client.InterruptRun(cmd.Context(), args[0], kill)
		},
	}
	c.Flags().BoolVar(&kill, "kill", false, "end it at once")
	return c
}

func (a *app) runsRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm RUN...",
		Short: "Remove records of runs that have ended",
		Long:  `Remove records of runs that have ended. Their sandboxes, if they are still there, stay.`,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readRecords(cmd.Context(), func(c *client.Client) error {
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
