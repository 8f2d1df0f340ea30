package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// task is one task of an agent, as the command line follows it.
type task struct {
	*app
	o      *agentOptions
	client *client.Client
	in     *interrupts
	screen *screen
	view   *agentView // nil when nothing is shown

	directory string // of this machine, to take the work over into; empty is none

	run    api.Run     // as it began
	answer api.Message // of type result
	ticks  sync.WaitGroup
	ended  context.CancelFunc // of the line below
	stop   func(ctx context.Context, kill bool) error
}

// giveTask has a task done, shows how, and has it settled what becomes of the
// work.
func (a *app) giveTask(ctx context.Context, o *agentOptions, req api.RunRequest, settle func(*task, context.Context, agentWork) error) error {
	t := &task{app: a, o: o, in: watchSignals(a.Out, a.Err), screen: a.newScreen(), ended: func() {}}
	defer t.in.stop()
	covered, cancel := t.in.cover(ctx)
	defer cancel()
	b, err := a.lasting(covered)
	if err != nil {
		return t.failed(err)
	}
	defer b.close()
	t.client = b.client
	t.stop = func(ctx context.Context, kill bool) error { return t.client.InterruptRun(ctx, t.run.ID, kill) }
	if req.Resume, err = t.resumes(covered); err != nil {
		return t.failed(err)
	}
	run, err := t.follow(covered, cancel, req)
	if err != nil {
		return t.failed(err)
	}
	if o.detach {
		return a.print(run.ID + "\n")
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
		earlier, err = lastRunOf(ctx, t.client, t.o.agent, dir)
	default:
		earlier, err = t.client.Run(ctx, t.o.resume)
	}
	t.directory = earlier.Directory
	return earlier.ID, err
}

// failed is for what did not become a run, or whose end nobody knows.
func (t *task) failed(err error) error {
	if t.o.json && !errors.Is(err, syscall.EPIPE) && cove.ErrorCode(err) != cove.Canceled {
		t.printLine(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
	}
	return t.in.explain(err)
}

// printLine writes one JSON object on a line to standard output.
func (t *task) printLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.print(plainJSON(string(b)) + "\n")
}

// follow follows the task to its end, or to its beginning when it goes on by
// itself. A signal interrupts the agent, and a second one ends it.
func (t *task) follow(ctx context.Context, leave context.CancelFunc, req api.RunRequest) (api.Run, error) {
	steps := t.newSteps()
	asker := t.newAsker(t.client, t.askTerminal(), t.screen)
	defer asker.stop()
	defer t.in.settle()
	defer t.endBelow()
	t.show()
	s := client.RunStream{
		Progress: func(p api.Progress) error {
			if t.view != nil {
				steps.take(p)
			}
			return nil
		},
		Started: func(r api.Run) error {
			t.run = r
			if t.view != nil {
				steps.finish()
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
		Holds:    func(all []api.Hold) error { asker.take(all); return nil },
	}
	run, err := t.client.StartRun(ctx, req, s)
	if err != nil && t.run.ID != "" && t.o.detach && t.in.first() == 0 {
		return t.run, nil
	}
	if err != nil && t.view != nil {
		steps.fail()
	}
	if err != nil && t.run.ID != "" {
		t.screen.apart(func() { t.sayLost() })
	}
	return run, err
}

// show has what the agent does shown, unless that is not wanted.
func (t *task) show() {
	if t.o.quiet || t.o.json {
		return
	}
	t.view = newAgentView(t.screen.stderr, t.columns)
	t.view.say, t.view.color, t.view.verbose = t.screen.apart, t.say.color, t.o.verbose
}

// askTerminal is the terminal at which somebody can be asked, or nil.
func (t *task) askTerminal() *os.File {
	if t.o.detach || t.o.prompt == "-" || t.o.promptFile == "-" || !isTerminal(t.In) || !isTerminal(t.Err) || !foreground(t.In) {
		return nil
	}
	return t.In
}

// columns is how wide the terminal is; 0 where there is none.
func (t *task) columns() int {
	if !isTerminal(t.Err) {
		return 0
	}
	return columns(t.Err)
}

// begun says where the agent works, and from now on how it gets along.
func (t *task) begun() {
	if t.view != nil {
		t.sayWhere()
	}
	t.sayExposed(t.run.Exposes)
	t.follows()
}

// sayWhere says where the agent works.
func (t *task) sayWhere() {
	where := ""
	switch r := t.run; {
	case r.Bind:
		where = ", on " + r.Directory + " itself"
	case r.Directory != "":
		where = ", on a copy of " + r.Directory
	}
	t.say.line("%s works in the sandbox %s%s", strings.TrimSpace(t.run.Agent+" "+t.run.Version), orElse(t.run.SandboxName, t.run.Sandbox), where)
}

// follows shows from now on how the agent gets along, and has signals stop it.
func (t *task) follows() {
	t.in.onSignal(func() { t.interrupt(false) }, func() { t.interrupt(true) })
	if t.view == nil {
		return
	}
	t.view.doing(t.run.Agent + " works")
	if t.screen.terminal == nil || t.getenv("TERM") == "dumb" {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.ended = cancel
	began := time.Now()
	t.ticks.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			t.screen.below(paint(t.say.color, dim, t.view.status(time.Since(began), columns(t.Err)-len(" ^C"))))
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
	t.screen.below("")
	t.screen.restore()
}

// interrupt asks the agent to stop, or ends it.
func (t *task) interrupt(kill bool) {
	doing, words := "stopping", fmt.Sprintf("%s is asked to stop; ctrl-c again ends it at once", t.run.Agent)
	if kill {
		doing, words = "ending", t.run.Agent+" is ended"
	}
	t.screen.apart(func() { t.say.line("%s", words) })
	if t.view != nil {
		t.view.doing(doing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := t.stop(ctx, kill); err != nil && cove.ErrorCode(err) != cove.Conflict && cove.ErrorCode(err) != cove.NotFound {
		t.in.giveUp() // leaving interrupts it, too
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
		return t.printLine(m)
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
		t.view.decision(d, t.say)
	}
	return nil
}

// sayLost says where the work is of a run that could not be followed to its end.
func (t *task) sayLost() {
	rows := [][2]string{{"run", t.command("runs", "show", t.run.ID)}}
	if name := orElse(t.run.SandboxName, t.run.Sandbox); name != "" && !t.run.Bind {
		rows = append(rows, [2]string{"its work", t.command("diff", name)})
	}
	t.sayFacts(rows)
}

// conclude says how the task has ended, and has the work settled.
func (t *task) conclude(ctx context.Context, run api.Run, req api.RunRequest, settle func(*task, context.Context, agentWork) error) error {
	t.exit = exitOfRun(run, t.in.first())
	if err := t.printAnswer(run); err != nil {
		return err
	}
	if t.view != nil {
		t.view.end()
	}
	if run.Status == api.RunError {
		err := runError(run)
		t.say.fail(err)
		if t.o.json {
			t.printLine(run.Error)
		}
	}
	if t.view != nil {
		t.say.line("%s", runText(run, inForce(agentLimits, limitsOf(req), req.Timeout)))
		if run.ID != "" {
			t.sayFacts([][2]string{{"transcript", t.command("runs", "show", run.ID)}})
		}
	}
	if run.Bind {
		if t.view != nil {
			t.say.line("it has worked in %s itself; \"git diff\" there shows what it has changed", run.Directory)
		}
		return nil
	}
	return settle(t, ctx, agentWork{sandbox: run.Sandbox, name: orElse(run.SandboxName, run.Sandbox), directory: t.directory, changed: len(run.Changes),
		succeeded: run.Status == api.RunSucceeded, ours: t.o.sandbox == ""})
}

// printAnswer prints what the agent has answered, unless it is on the screen.
func (t *task) printAnswer(run api.Run) error {
	text := run.Result
	switch {
	case t.o.json, run.Status == api.RunError: // the error says what there is to say
		return nil
	case len(t.answer.Data) > 0:
		text = string(t.answer.Data)
	case t.view != nil && isTerminal(t.Out) && isTerminal(t.Err) && strings.TrimSpace(text) == strings.TrimSpace(t.view.spoken):
		return nil
	}
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	if isTerminal(t.Out) {
		text = plainLines(text)
		if t.view != nil {
			t.view.end()
		}
	}
	return t.print(text + "\n")
}

// agentLimits are those of a task whose flags and profile say nothing.
var agentLimits = cove.Limits{Memory: 2 << 30, CPUs: 2, PIDs: 512, Timeout: 30 * time.Minute}

func limitsOf(req api.RunRequest) *api.Limits {
	if req.New == nil {
		return nil
	}
	return req.New.Limits
}

// runText says in one line how a task has ended, and what it took.
func runText(r api.Run, used cove.Limits) string {
	parts := []string{}
	if r.Status == api.RunFailed && r.ExitCode != nil && *r.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	if r.EndedAt != nil {
		parts = append(parts, timeText(r.EndedAt.Sub(r.StartedAt)))
	}
	if n := r.Usage.Turns; n > 0 {
		parts = append(parts, counted(n, "turn", "turns"))
	}
	if u := usedText(r.Usage); u != "" {
		parts = append(parts, u)
	}
	took := ""
	if len(parts) > 0 {
		took = " (" + strings.Join(parts, ", ") + ")"
	}
	switch r.Status {
	case api.RunSucceeded:
		return r.Agent + " has done it" + took
	case api.RunFailed:
		return r.Agent + " has not done it" + took
	case api.RunInterrupted:
		return r.Agent + " was interrupted" + took
	case api.RunLimit:
		return limitText(r.LimitHit, used) + took
	}
	return r.Agent + " has not come to an end" + took
}

// limitText says which limit ended a task, and which flag changes it.
func limitText(limit string, used cove.Limits) string {
	switch limit {
	case "turns":
		return stopped("out of turns", "", "--max-turns")
	case "budget":
		return stopped("the budget for models is used up", "", "--budget")
	}
	return orElse(verdict(api.Execution{LimitHit: limit}, used), "stopped by a limit: "+limit)
}

// runError is why a run has not come to its end.
func runError(r api.Run) error {
	if r.Error == nil {
		return cove.Errorf(cove.Internal, "the run %s has not come to an end, and nobody knows why", r.ID)
	}
	return &cove.Error{Code: cove.Code(r.Error.Code), Message: strings.TrimSuffix(r.Error.Error, " ("+r.Error.Hint+")"), Hint: r.Error.Hint}
}
