package run

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func logsCommand(sess *session.Session) *cobra.Command {
	var p flags.Target
	var terminal string
	follow := false
	c := &cobra.Command{
		Use:   "logs",
		Short: "Print what an execution printed, or a sandbox's terminal shows",
		Long: `Print the output of an execution that has ended: its standard output on
standard output, its errors on standard error. With -f also of one that runs,
whichever process of Cove on this machine runs it: what it has printed so far,
and the rest as it comes. To stop following does not end it.

Of a sandbox that runs, print what its terminal shows and has shown, as plain
text: that of the oldest program that runs, else of the one that ended last. With
-f, print that first, and go on with each line that is whole, until the program ends;
what is written over comes again.`,
		Example: `  cove logs $(cove ps -aq -n 1)
  cove logs -f $(cove ps -q -n 1)
  cove logs brave-otter
  cove logs -f brave-otter
  cove logs brave-otter --terminal t2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.HasPrefix(p.Name, "ex_") {
				if follow {
					return followTerminal(sess, cmd, p, terminal)
				}
				return sandboxLogs(sess, cmd, p, terminal)
			}
			ids, err := session.ExecutionIDs(cmd.Context(), sess, p.Name)
			if err != nil {
				return err
			}
			if follow {
				return followExecution(cmd.Context(), sess, ids[0])
			}
			return logs(cmd.Context(), sess, ids[0])
		},
	}
	p.AddTo(sess, c)
	c.Use = "logs [ID|SANDBOX]"
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until it ends")
	sess.AddRaw(c.Flags())
	c.Flags().StringVar(&terminal, "terminal", "", "`ID` of the sandbox's terminal")
	ui.OldLetter(c.Flags(), "t", "terminal")
	return c
}

// followExecution asks one process of Cove after the other. The process that runs the execution streams its output;
// without one the output comes from the record.
func followExecution(ctx context.Context, sess *session.Session, id string) error {
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	defer session.CloseAll(peers)
	out := sess.NewScreen()
	for _, p := range peers {
		begun := false
		e, err := p.Client.Follow(ctx, id,
			client.Stream{Stdout: out.Stdout, Stderr: out.Stderr, Started: func(string) { begun = true }})
		if begun {
			out.Restore()
		}
		if err == nil {
			sayEnd(sess, e)
			return nil
		}
		if begun || !session.NotHere(err) {
			return err
		}
	}
	return logs(ctx, sess, id)
}

func logs(ctx context.Context, sess *session.Session, id string) error {
	e, err := session.OfRecords(ctx, sess,
		func(c *client.Client, ctx context.Context) (api.Execution, error) { return c.Get(ctx, id) })
	if err != nil {
		return err
	}
	out := sess.NewScreen()
	_, err = io.WriteString(out.Stdout, e.Output)
	if err == nil {
		_, err = io.WriteString(out.Stderr, e.Stderr)
	}
	if out.Restore(); err != nil {
		return err
	}
	if e.Status == api.StatusRunning {
		sess.Say.Line("it still runs, and its output is kept when it has ended; \"cove logs -f %s\" shows it as it comes", id)
	} else {
		sayEnd(sess, e)
	}
	return nil
}

func sayEnd(sess *session.Session, e api.Execution) {
	sess.Say.Lines(report.Truncation(e), report.History(e), report.Verdict(e))
}

func sandboxLogs(sess *session.Session, cmd *cobra.Command, p flags.Target, id string) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		text, err := c.TerminalText(ctx, s.ID, id)
		return sess.Show(ui.Result{Text: text}, err)
	})
}

const followInterval = 300 * time.Millisecond

// followTerminal prints what a terminal shows as it comes, line by line, until its program has ended.
func followTerminal(sess *session.Session, cmd *cobra.Command, p flags.Target, id string) error {
	return p.With(cmd, sess, func(ctx context.Context, c *client.Client, s api.Sandbox) error {
		var f follower
		for {
			all, err := c.Terminals(ctx, s.ID)
			if err != nil {
				return err
			}
			runs := func(t api.Terminal) bool { return t.ExitCode == nil && (id == "" || t.ID == id) }
			i := slices.IndexFunc(all, runs)
			if i >= 0 {
				id = all[i].ID // and no other from now on
			}
			text, err := c.TerminalText(ctx, s.ID, id)
			if err != nil {
				return err
			}
			if err := sess.Print(f.next(text, i >= 0)); err != nil || i < 0 {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(followInterval):
			}
		}
	})
}

// follower turns what a terminal shows into what is new of it.
type follower struct {
	begun bool
	shown []string // whole lines
	open  string   // what was printed of the line after them
}

// next returns what is to be printed of a terminal's text: at first all that is there, as "cove logs" prints it, and
// then each line that is whole. The last line is still being written while the program runs.
func (f *follower) next(text string, runs bool) string {
	lines, last := strings.Split(strings.TrimRight(text, "\n"), "\n"), ""
	if runs || lines[0] == "" && len(lines) == 1 {
		last = lines[len(lines)-1]
		lines = lines[:len(lines)-1]
	}
	var b strings.Builder
	for i, line := range unseen(f.shown, lines) {
		if i == 0 && f.open != "" {
			rest, goesOn := strings.CutPrefix(line, f.open)
			if f.open = ""; goesOn {
				line = rest
			} else {
				line = "\n" + line
			}
		}
		b.WriteString(line + "\n")
	}
	if !f.begun {
		b.WriteString(last)
		f.open = last
	}
	f.begun, f.shown = true, lines
	return b.String()
}

// unseen returns the new lines of a terminal: those after the lines that were seen, of which the terminal may have
// dropped the oldest. When a seen line was overwritten, they begin with it.
func unseen(shown, now []string) []string {
	for gone := range shown {
		rest := shown[gone:]
		if len(rest) <= len(now) && slices.Equal(rest, now[:len(rest)]) {
			return now[len(rest):]
		}
		if gone == 0 && len(now) > 0 && shown[0] == now[0] {
			break // nothing is forgotten
		}
	}
	same := 0
	for same < min(len(shown), len(now)) && shown[same] == now[same] {
		same++
	}
	return now[same:]
}
