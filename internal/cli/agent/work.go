package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// work is what an agent has done in a sandbox, before anybody has decided
// what becomes of it.
type work struct {
	sandbox, name string
	directory     string // of this machine, to take it over into
	changed       int    // files
	succeeded     bool
	ours          bool // the sandbox was made for the agent, and goes once the work is settled
}

// settle shows what an agent has changed, and takes it over, throws it away, or
// says where it is. What nobody has decided about stays.
func (t *task) settle(ctx context.Context, w work) error {
	if w.changed == 0 {
		return t.unchanged(ctx, w)
	}
	t.keepOnSignal(w)
	if !t.o.JSON && !t.o.quiet {
		t.tell("it has changed %s:", ui.Counted(w.changed, "file", "files"))
		if err := t.showDiff(ctx, w, client.WorkOptions{Stat: true}); err != nil {
			t.Say.Fail(err) // what is shown does not change what becomes of it
		}
	}
	switch {
	case t.o.apply && w.succeeded:
		return t.takeOver(ctx, w)
	case t.o.apply, t.o.JSON, w.directory == "", !w.ours, t.askTerminal() == nil:
		t.sayKept(w)
		return nil
	}
	return t.askWhether(ctx, w)
}

// keepOnSignal has a signal leave the work where it is.
func (t *task) keepOnSignal(w work) {
	t.in.OnSignal(func() {
		fmt.Fprintln(t.Err)
		t.sayKept(w)
		t.in.Leave(ui.ExitSignal(t.in.First()))
	})
}

// unchanged is for work that has changed nothing, as far as is known: then a
// sandbox that was made for it has gone, unless it was to stay.
func (t *task) unchanged(ctx context.Context, w work) error {
	_, err := t.client.Sandbox(ctx, w.sandbox)
	if gone := cove.ErrorCode(err) == cove.NotFound; !gone && w.ours && !t.o.keep {
		t.Say.Line("what it has changed is not known")
		if _, err := t.client.WorkChanges(ctx, w.sandbox, nil, false); err != nil {
			t.Say.Fail(err)
		}
		t.sayKept(w)
		return nil
	}
	t.tell("it has changed nothing")
	if t.o.keep && w.ours {
		t.sayKept(w)
	}
	return nil
}

// tell says something that --quiet and --json leave out.
func (t *task) tell(format string, args ...any) {
	if !t.o.quiet && !t.o.JSON {
		t.Say.Line(format, args...)
	}
}

func (t *task) showDiff(ctx context.Context, w work, o client.WorkOptions) error {
	out := &report.PatchWriter{To: t.Err, Color: t.Say.Color}
	if err := t.client.DiffWork(ctx, w.sandbox, o, out); err != nil {
		return err
	}
	return out.Close()
}

// askWhether asks what becomes of the work. Who leaves has decided nothing.
func (t *task) askWhether(ctx context.Context, w work) error {
	question := fmt.Sprintf("take it over into %s? [y]es, show the [d]iff, [n]o and throw it away, or [k]eep it in the sandbox: ", ui.Printable(w.directory))
	for {
		fmt.Fprint(t.Err, t.Say.Paint(ui.Dim, "cove:")+" "+question)
		answer, err := ui.TypedLine(t.In)
		if err != nil {
			fmt.Fprintln(t.Err)
			answer = "keep"
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return t.takeOver(ctx, w)
		case "d", "diff":
			if err := t.showDiff(ctx, w, client.WorkOptions{}); err != nil {
				t.Say.Fail(err)
			}
		case "n", "no":
			return t.remove(ctx, w)
		case "k", "keep":
			t.sayKept(w)
			return nil
		}
	}
}

// takeOver changes the directory as the agent has changed its copy. Where that
// fails the work stays in the sandbox.
func (t *task) takeOver(ctx context.Context, w work) error {
	done, err := t.client.ApplyWork(ctx, w.sandbox, api.ApplyRequest{Directory: w.directory})
	if err != nil {
		t.sayKept(w)
		return err
	}
	t.Say.Line("%s", report.AppliedText(len(done.Changes), w.directory))
	return t.remove(ctx, w)
}

// remove removes the sandbox, whose work is settled.
func (t *task) remove(ctx context.Context, w work) error {
	if t.o.keep || !w.ours {
		t.sayKept(w)
		return nil
	}
	if err := t.client.DestroySandbox(ctx, w.sandbox, false); err != nil && cove.ErrorCode(err) != cove.NotFound {
		return err
	}
	return nil
}

// sayKept says where the work is, and what to do with it.
func (t *task) sayKept(w work) {
	t.Say.Line("the sandbox %s stays, with the work in it", w.name)
	rows := [][2]string{{"review", t.Command("diff", w.name)}}
	if w.directory != "" {
		rows = append(rows, [2]string{"take over", t.Command("apply", w.name, "--to", ui.ShellWord(w.directory))})
	} else {
		rows = append(rows, [2]string{"push", t.Command("push", w.name)})
	}
	t.SayFacts(append(rows, [2]string{"look inside", t.Command("attach", w.name)}, [2]string{"throw away", t.Command("destroy", w.name)}))
}

// checkScreen refuses to show an agent's screen where there is no terminal, or
// with flags that are about a task.
func checkScreen(sess *session.Session, cmd *cobra.Command, o *options, ofTask ...string) error {
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Out) {
		return cove.Errorf(cove.InvalidArgument, "PROMPT is missing").WithHint("write it in quotes, in a file for --prompt-file, or on standard input for \"-\"")
	}
	if i := slices.IndexFunc(ofTask, o.Given); i >= 0 {
		return ui.UsageError(cmd, "PROMPT is missing: --%s is about a task", ofTask[i])
	}
	return nil
}

// agentTerminal shows the agent's own screen in a sandbox that is made for it,
// and settles what becomes of the work when it has ended.
func agentTerminal(sess *session.Session, cmd *cobra.Command, o *options) error {
	if err := checkScreen(sess, cmd, o, "json", "quiet", "verbose", "detach", "schema", "max-turns", "timeout", "resume", "sandbox", "model", "instructions"); err != nil {
		return err
	}
	req, err := agentSandbox(sess, o)
	if err != nil {
		return err
	}
	dir, below, err := o.workDirectory()
	if err != nil {
		return err
	}
	if req.Agent = o.Agent; o.bind {
		req.Bind = dir
	} else {
		req.Repository, req.WorkDir = &api.RepositoryRequest{Source: dir, Uncommitted: true}, below
	}
	s, err := interact.CreateSandbox(cmd.Context(), sess, req)
	if err != nil {
		return err
	}
	ended, err := interact.ShowTerminal(sess, cmd, flags.Target{Name: s.ID}, interact.DefaultDetachKeys, client.TerminalOptions{})
	t := &task{Session: sess, o: o, in: ui.WatchSignals(sess.Out, sess.Err), screen: sess.NewScreen(), ended: func() {}}
	defer t.in.Stop()
	w := work{sandbox: s.ID, name: s.Name, directory: dir, succeeded: ended && sess.Exit == 0, ours: true}
	if !ended {
		if err != nil {
			t.sayKept(w)
		}
		return err
	}
	b, err := sess.Server(cmd.Context())
	if err != nil {
		t.sayKept(w)
		return err
	}
	defer b.Close()
	t.client = b.Client
	if o.bind {
		return t.remove(cmd.Context(), w)
	}
	done, err := t.client.WorkChanges(cmd.Context(), s.ID, nil, false)
	if err != nil {
		t.sayKept(w)
		return err
	}
	if w.changed = len(done.Changes); w.changed == 0 {
		t.tell("it has changed nothing")
		return t.remove(cmd.Context(), w)
	}
	return t.settle(cmd.Context(), w)
}
