package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/devcontainers"
	"github.com/cove-sandbox/cove/internal/cli/interact"
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
	if !t.JSON && !t.o.quiet {
		t.tell("it has changed %s:", ui.Counted(w.changed, "file", "files"))
		if err := showChanges(ctx, t, w); err != nil {
			t.Say.Fail(err) // what is shown does not change what becomes of it
		}
	}
	switch {
	case t.o.apply && w.succeeded:
		return t.takeOver(ctx, w)
	case t.o.apply, t.JSON, w.directory == "", !w.ours, t.askTerminal() == nil:
		t.sayKept(w)
		return nil
	}
	return t.askWhether(ctx, w)
}

func (t *task) keepOnSignal(w work) {
	t.in.OnSignal(func() {
		fmt.Fprintln(t.Err)
		t.sayKept(w)
		t.in.Leave(ui.ExitSignal(t.in.First()))
	})
}

// unchanged is for a run without changes on its record: it has changed nothing, it has commits elsewhere than on the
// branch that is checked out, or its changes could not be read.
func (t *task) unchanged(ctx context.Context, w work) error {
	known, err := knownUnchanged(ctx, t.client, w.sandbox, t.o.keep || t.o.resume != "" || t.o.made || !w.ours)
	if err == nil && holdsMore(ctx, t, w) {
		return nil
	}
	if !known {
		t.Say.Line("what it has changed is not known")
		if err != nil {
			t.Say.Fail(err)
		}
		t.sayKept(w)
		return nil
	}
	t.tell("it has changed nothing")
	if t.o.keep && w.ours {
		t.sayKept(w)
	}
	if t.o.made && !t.o.keep {
		return t.remove(ctx, w)
	}
	return nil
}

// knownUnchanged reports whether a run without changes on its record has changed nothing. Then its sandbox is gone, or
// of one that stays in any case the changes can be read. The error is why they cannot.
func knownUnchanged(ctx context.Context, c *client.Client, sandbox string, stays bool) (bool, error) {
	_, err := c.WorkChanges(ctx, sandbox, nil, false)
	switch cove.ErrorCode(err) {
	case cove.NotFound, cove.InvalidArgument: // gone, or without a repository
		_, gone := c.Sandbox(ctx, sandbox)
		return stays || cove.ErrorCode(gone) == cove.NotFound, nil
	case "":
		return stays, nil
	}
	return false, err
}

// showChanges lists the changed files, and those of which the diff shows nothing on a line of their own.
func showChanges(ctx context.Context, t *task, w work) error {
	if err := t.showDiff(ctx, w, client.WorkOptions{Stat: true}); err != nil {
		return err
	}
	done, err := t.client.WorkChanges(ctx, w.sandbox, nil, false)
	t.Say.Lines(report.Unread(done.Changes)...)
	return err
}

func (t *task) showDiff(ctx context.Context, w work, o client.WorkOptions) error {
	out := &report.PatchWriter{To: t.Err, Color: t.Say.Color}
	if err := t.client.DiffWork(ctx, w.sandbox, o, out); err != nil {
		return err
	}
	return out.Close()
}

// askWhether asks what becomes of the work. A user who leaves has decided nothing.
func (t *task) askWhether(ctx context.Context, w work) error {
	question := "take it over into " + w.directory +
		"? [y]es, [c]hoose, show the [d]iff, [n]o and throw it away, or [k]eep it in the sandbox: "
	for {
		t.Say.Ask(question, ui.Columns(t.Err))
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
		case "c", "choose":
			if settled, err := takeChosen(ctx, t, w); settled || err != nil {
				return err
			}
		case "n", "no":
			return t.remove(ctx, w)
		case "k", "keep":
			t.sayKept(w)
			return nil
		default:
			t.Say.Line("%.40q is none of y, c, d, n and k", strings.TrimSpace(answer))
		}
	}
}

// takeChosen asks which of the changes to take over, and takes those. The rest stays in the sandbox, unless the user
// wants none of it. settled is false when nothing was chosen.
func takeChosen(ctx context.Context, t *task, w work) (settled bool, err error) {
	all, err := t.client.WorkChanges(ctx, w.sandbox, nil, true)
	if err != nil {
		t.Say.Fail(err)
		return false, nil
	}
	choice, whole := interact.Choose(t.Session, all.Changes)
	if len(choice) == 0 {
		t.Say.Line("nothing is chosen")
		return false, nil
	}
	done, err := interact.ApplyWork(ctx, t.Session, t.client, w.sandbox,
		api.ApplyRequest{Directory: w.directory, Choice: choice})
	if err != nil {
		t.sayKept(w)
		return true, err
	}
	t.Say.Lines(report.AppliedNotes(done.Changes, w.directory)...)
	if whole {
		return true, release(ctx, t, w)
	}
	t.Say.Ask("throw the rest away? [y]es, or [n]o, it stays in the sandbox: ", ui.Columns(t.Err))
	answer, err := ui.TypedLine(t.In)
	if err != nil {
		fmt.Fprintln(t.Err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); err == nil && (answer == "y" || answer == "yes") {
		return true, t.remove(ctx, w)
	}
	t.sayKept(w)
	return true, nil
}

// takeOver changes the directory as the agent has changed its copy. Where that fails the work stays in the sandbox.
func (t *task) takeOver(ctx context.Context, w work) error {
	done, err := interact.ApplyWork(ctx, t.Session, t.client, w.sandbox, api.ApplyRequest{Directory: w.directory})
	if err != nil {
		t.sayKept(w)
		return err
	}
	t.Say.Lines(report.AppliedNotes(done.Changes, w.directory)...)
	return release(ctx, t, w)
}

// release removes the sandbox of work that is elsewhere now, unless it holds more.
func release(ctx context.Context, t *task, w work) error {
	if !t.o.keep && w.ours && holdsMore(ctx, t, w) {
		return nil
	}
	return t.remove(ctx, w)
}

// holdsMore reports whether a sandbox has commits besides the changes of its files, and says that it stays with them.
// What cannot be found out is work.
func holdsMore(ctx context.Context, t *task, w work) bool {
	held, err := t.client.HeldWork(ctx, w.sandbox)
	switch code := cove.ErrorCode(err); {
	case code == cove.NotFound, code == cove.InvalidArgument: // gone, or without a repository
		return false
	case err != nil:
		t.Say.Line("what else is in the sandbox is not known")
		t.Say.Fail(err)
	case w.changed == 0 && held.Commits > 0:
		t.Say.Line("it has changed no file, but has %s", ui.Counted(held.Commits, "commit", "commits"))
	case held.Aside > 0:
		t.Say.Line("it has %s more, on other branches or in a stash", ui.Counted(held.Aside, "commit", "commits"))
	default:
		return false
	}
	t.sayKept(w)
	return true
}

func (t *task) remove(ctx context.Context, w work) error {
	if t.o.keep || !w.ours {
		t.sayKept(w)
		return nil
	}
	said, err := devcontainers.Remove(ctx, t.Session, t.client, w.sandbox, false)
	if err != nil && cove.ErrorCode(err) != cove.NotFound {
		return err
	}
	sayMade(t, said.Made)
	return nil
}

func (t *task) sayKept(w work) {
	t.Say.Line("the sandbox %s stays, with the work in it", w.name)
	onward := [2]string{"push", t.Command("push", w.name)}
	if w.directory != "" {
		onward = [2]string{"take over", t.Command("apply", w.name, "--to", ui.ShellWord(w.directory))}
	}
	t.SayFacts(ui.Facts{{"review", t.Command("diff", w.name)}, onward, {"look inside", t.Command("attach", w.name)},
		{"throw away", t.Command("destroy", w.name)}})
}
