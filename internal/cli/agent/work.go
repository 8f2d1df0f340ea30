package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// settle shows what an agent has changed, and applies it, discards it, or
// says where it is. Without a decision of the user the work stays.
func (t *task) settle(ctx context.Context, w work) error {
	if w.changed == 0 {
		return t.unchanged(ctx, w)
	}
	t.keepOnSignal(w)
	if !t.o.json && !t.o.quiet {
		t.tell("it has changed %s:", ui.Counted(w.changed, "file", "files"))
		if err := t.showDiff(ctx, w, client.WorkOptions{Stat: true}); err != nil {
			t.Say.Fail(err) // what is shown does not change what becomes of it
		}
	}
	switch {
	case t.o.apply && w.succeeded:
		return t.takeOver(ctx, w)
	case t.o.apply, t.o.json, w.directory == "", !w.ours, t.askTerminal() == nil:
		t.sayKept(w)
		return nil
	}
	return t.askWhether(ctx, w)
}

// keepOnSignal keeps the work in the sandbox when a signal comes.
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

// tell prints a message that --quiet and --json leave out.
func (t *task) tell(format string, args ...any) {
	if !t.o.quiet && !t.o.json {
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
	question := "take it over into " + ui.Printable(w.directory) +
		"? [y]es, show the [d]iff, [n]o and throw it away, or [k]eep it in the sandbox: "
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

// takeOver changes the directory as the agent has changed its copy. Where that fails the work stays in the sandbox.
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

// sayKept prints where the work is, and the commands to use it with.
func (t *task) sayKept(w work) {
	t.Say.Line("the sandbox %s stays, with the work in it", w.name)
	rows := [][2]string{{"review", t.Command("diff", w.name)}}
	if w.directory != "" {
		rows = append(rows, [2]string{"take over", t.Command("apply", w.name, "--to", ui.ShellWord(w.directory))})
	} else {
		rows = append(rows, [2]string{"push", t.Command("push", w.name)})
	}
	t.SayFacts(append(rows, [2]string{"look inside", t.Command("attach", w.name)},
		[2]string{"throw away", t.Command("destroy", w.name)}))
}
