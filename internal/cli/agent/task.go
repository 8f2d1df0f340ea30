package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// task is one task of an agent, as the command line follows it.
type task struct {
	*session.Session
	o      *options
	client *client.Client
	in     *ui.Interrupts
	screen *ui.Screen
	view   *view // nil when nothing is shown

	directory string // of this machine, to take the work over into; empty is none

	run    api.Run     // as it began
	answer api.Message // of type result
	ticks  sync.WaitGroup
	ended  context.CancelFunc // of the line below
	stop   func(ctx context.Context, kill bool) error
}

// giveTask runs a task in a sandbox, shows its progress, and calls settle with the work.
func giveTask(ctx context.Context, sess *session.Session, o *options, req api.RunRequest,
	settle func(*task, context.Context, work) error) error {
	t := &task{Session: sess, o: o, in: ui.WatchSignals(sess.Out, sess.Err), screen: sess.NewScreen(), ended: func() {}}
	defer t.in.Stop()
	covered, cancel := t.in.Cover(ctx)
	defer cancel()
	b, err := sess.Server(covered)
	if err != nil {
		return t.failed(err)
	}
	defer b.Close()
	t.client = b.Client
	t.stop = func(ctx context.Context, kill bool) error { return t.client.InterruptRun(ctx, t.run.ID, kill) }
	if req.Resume, err = t.resumes(covered); err != nil {
		return t.failed(err)
	}
	run, err := t.follow(covered, cancel, req)
	if err != nil {
		return t.failed(err)
	}
	if o.detach {
		return sess.Print(run.ID + "\n")
	}
	return t.conclude(ctx, run, req, settle)
}

// resumes is the id of the run that goes on, if one does.
func (t *task) resumes(ctx context.Context) (string, error) {
	var earlier api.Run
	var err error
	switch t.o.resume {
	case "":
		t.directory, _, err = t.o.workDirectory()
		return "", err
	case lastRun:
		dir, _, derr := t.o.workDirectory()
		if derr != nil {
			return "", derr
		}
		earlier, err = lastRunOf(ctx, t.client, t.o.Agent, dir)
	default:
		earlier, err = t.client.Run(ctx, t.o.resume)
	}
	t.directory = earlier.Directory
	return earlier.ID, err
}

// failed reports the error of a task that did not become a run, or of a run whose end is unknown.
func (t *task) failed(err error) error {
	if t.o.json && !errors.Is(err, syscall.EPIPE) && cove.ErrorCode(err) != cove.Canceled {
		t.PrintJSONLine(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
	}
	return t.in.Explain(err)
}

// follow follows the task to its end, or to its beginning when it goes on by
// itself. A signal interrupts the agent, and a second one ends it.
func (t *task) follow(ctx context.Context, leave context.CancelFunc, req api.RunRequest) (api.Run, error) {
	steps := t.NewSteps()
	asker := interact.NewAsker(t.Session, t.client, t.askTerminal(), t.screen)
	defer asker.Stop()
	defer t.in.Settle()
	defer t.endBelow()
	t.show()
	s := client.RunStream{
		Progress: func(p api.Progress) error {
			if t.view != nil {
				steps.Take(p)
			}
			return nil
		},
		Started: func(r api.Run) error {
			t.run = r
			if t.view != nil {
				steps.Finish()
			}
			if t.o.detach {
				leave()
				return nil
			}
			t.begun()
			return nil
		},
		Message:  t.message,
		Log:      t.log,
		Decision: t.decision,
		Holds:    func(all []api.Hold) error { asker.Take(all); return nil },
	}
	run, err := t.client.StartRun(ctx, req, s)
	if err != nil && t.run.ID != "" && t.o.detach && t.in.First() == 0 {
		return t.run, nil
	}
	if err != nil && t.view != nil {
		steps.Fail()
	}
	if err != nil && t.run.ID != "" {
		t.screen.Apart(func() { t.sayLost() })
	}
	return run, err
}

// show shows the agent's activity, unless flags turn that off.
func (t *task) show() {
	if t.o.quiet || t.o.json {
		return
	}
	t.view = newView(t.screen.Stderr, t.columns)
	t.view.say, t.view.color, t.view.verbose = t.screen.Apart, t.Say.Color, t.o.verbose
}

// askTerminal returns the terminal at which the user can be asked, or nil.
func (t *task) askTerminal() *os.File {
	if t.o.detach || t.o.prompt == "-" || t.o.promptFile == "-" {
		return nil
	}
	if !ui.IsTerminal(t.In) || !ui.IsTerminal(t.Err) || !interact.Foreground(t.In) {
		return nil
	}
	return t.In
}

// columns is how wide the terminal is; 0 where there is none.
func (t *task) columns() int {
	if !ui.IsTerminal(t.Err) {
		return 0
	}
	return ui.Columns(t.Err)
}

// begun prints where the agent works, and begins to show its progress.
func (t *task) begun() {
	if t.view != nil {
		t.sayWhere()
	}
	interact.SayExposed(t.Session, t.run.Exposes)
	t.follows()
}

// sayWhere prints where the agent works.
func (t *task) sayWhere() {
	where := ""
	switch r := t.run; {
	case r.Bind:
		where = ", on " + r.Directory + " itself"
	case r.Directory != "":
		where = ", on a copy of " + r.Directory
	}
	t.Say.Line("%s works in the sandbox %s%s",
		strings.TrimSpace(t.run.Agent+" "+t.run.Version), cmp.Or(t.run.SandboxName, t.run.Sandbox), where)
}

// follows shows from now on how the agent gets along, and has signals stop it.
func (t *task) follows() {
	t.in.OnSignal(func() { t.interrupt(false) }, func() { t.interrupt(true) })
	if t.view == nil {
		return
	}
	t.view.doing(t.run.Agent + " works")
	if t.screen.Terminal == nil || t.Getenv("TERM") == "dumb" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.ended = cancel
	began := time.Now()
	t.ticks.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			t.screen.Below(ui.Paint(t.Say.Color, ui.Dim, t.view.status(time.Since(began), ui.Columns(t.Err)-len(" ^C"))))
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	})
}

// endBelow takes the line below away.
func (t *task) endBelow() {
	t.ended()
	t.ticks.Wait()
	t.screen.Below("")
	t.screen.Restore()
}

// interrupt asks the agent to stop, or ends it.
func (t *task) interrupt(kill bool) {
	doing, words := "stopping", fmt.Sprintf("%s is asked to stop; ctrl-c again ends it at once", t.run.Agent)
	if kill {
		doing, words = "ending", t.run.Agent+" is ended"
	}
	t.screen.Apart(func() { t.Say.Line("%s", words) })
	if t.view != nil {
		t.view.doing(doing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), session.KillTimeout)
	defer cancel()
	err := t.stop(ctx, kill)
	if code := cove.ErrorCode(err); err != nil && code != cove.Conflict && code != cove.NotFound {
		t.in.GiveUp() // leaving interrupts it, too
	}
}

func (t *task) message(m api.Message) error {
	if m.Type == api.MessageResult {
		t.answer = m
	}
	if t.view != nil {
		t.view.message(m)
	}
	if t.o.json {
		return t.PrintJSONLine(m)
	}
	return nil
}

func (t *task) log(b []byte) error {
	if t.o.verbose {
		t.view.log(string(b))
	}
	return nil
}

func (t *task) decision(d api.Decision) error {
	if t.view != nil {
		t.view.decision(d, t.Say)
	}
	return nil
}

// sayLost prints where the work of a run is that could not be followed to its end.
func (t *task) sayLost() {
	rows := [][2]string{{"run", t.Command("runs", "show", t.run.ID)}}
	if name := cmp.Or(t.run.SandboxName, t.run.Sandbox); name != "" && !t.run.Bind {
		rows = append(rows, [2]string{"its work", t.Command("diff", name)})
	}
	t.SayFacts(rows)
}

// conclude prints how the task has ended, and settles the work.
func (t *task) conclude(ctx context.Context, run api.Run, req api.RunRequest,
	settle func(*task, context.Context, work) error) error {
	t.Exit = exitOfRun(run, t.in.First())
	if err := t.printAnswer(run); err != nil {
		return err
	}
	if t.view != nil {
		t.view.end()
	}
	if run.Status == api.RunError {
		err := runError(run)
		t.Say.Fail(err)
		if t.o.json {
			t.PrintJSONLine(run.Error)
		}
	}
	if t.view != nil {
		t.Say.Line("%s", runText(run, report.InForce(agentLimits, limitsOf(req), req.Timeout)))
		if run.ID != "" {
			t.SayFacts([][2]string{{"transcript", t.Command("runs", "show", run.ID)}})
		}
	}
	if run.Bind {
		if t.view != nil {
			t.Say.Line("it has worked in %s itself; \"git diff\" there shows what it has changed", run.Directory)
		}
		return nil
	}
	return settle(t, ctx, work{
		sandbox:   run.Sandbox,
		name:      cmp.Or(run.SandboxName, run.Sandbox),
		directory: t.directory,
		changed:   len(run.Changes),
		succeeded: run.Status == api.RunSucceeded,
		ours:      t.o.sandbox == "",
	})
}

// printAnswer prints what the agent has answered, unless it is on the screen.
func (t *task) printAnswer(run api.Run) error {
	text := run.Result
	switch {
	case t.o.json, run.Status == api.RunError: // the error says what there is to say
		return nil
	case len(t.answer.Data) > 0:
		text = string(t.answer.Data)
	case t.view != nil && ui.IsTerminal(t.Out) && ui.IsTerminal(t.Err) &&
		strings.TrimSpace(text) == strings.TrimSpace(t.view.spoken):
		return nil
	}
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	if ui.IsTerminal(t.Out) {
		text = plainLines(text)
		if t.view != nil {
			t.view.end()
		}
	}
	return t.Print(text + "\n")
}

// work describes the changes of an agent in a sandbox, before the user decides what becomes of them.
type work struct {
	sandbox, name string
	directory     string // of this machine, to take it over into
	changed       int    // files
	succeeded     bool
	ours          bool // the sandbox was made for the agent, and goes once the work is settled
}

// lastRunOf is the run of an agent that was the last to begin in a directory, or to go on with what was begun there.
func lastRunOf(ctx context.Context, c *client.Client, agent, dir string) (api.Run, error) {
	of := func(q client.RunQuery, wanted func(api.Run) bool) (api.Run, error) {
		for {
			l, err := c.Runs(ctx, q)
			if err != nil {
				return api.Run{}, err
			}
			if i := slices.IndexFunc(l.Runs, func(r api.Run) bool { return !r.Interactive && wanted(r) }); i >= 0 {
				return l.Runs[i], nil
			}
			if q.Before = l.Next; q.Before == "" {
				return api.Run{}, cove.Errorf(cove.NotFound, "%s has done nothing in %s yet", agent, dir).
					WithHint("\"cove runs list\" shows the runs; name one with --resume=RUN")
			}
		}
	}
	begun, err := of(client.RunQuery{Agent: agent}, func(r api.Run) bool { return r.Directory == dir })
	if err != nil {
		return begun, err
	}
	last, err := of(client.RunQuery{Agent: agent, Sandbox: begun.Sandbox}, func(api.Run) bool { return true })
	last.Directory = begun.Directory
	return last, err
}
