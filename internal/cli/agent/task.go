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
	"github.com/cove-sandbox/cove/internal/cli/flags"
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

	goesOn string      // the sandbox of the run that it goes on with
	sent   string      // the directory of this machine that a server of another one has a copy of
	run    api.Run     // as it began
	answer api.Message // of type result
	noted  []string    // notes that are printed
	ticks  sync.WaitGroup
	ended  context.CancelFunc // of the line below
	stop   func(ctx context.Context, kill bool) error
}

func newTask(sess *session.Session, o *options) *task {
	t := &task{Session: sess, o: o, in: ui.WatchSignals(sess.Out, sess.Err), screen: sess.NewScreen(), ended: func() {}}
	t.in.BeforeLeaving(func() {
		t.screen.Below("") // the shell's prompt takes its line
		t.screen.Restore()
	})
	return t
}

// giveTask runs a task in a sandbox, shows its progress, and calls settle with the work.
func giveTask(ctx context.Context, sess *session.Session, o *options, req api.RunRequest,
	settle func(*task, context.Context, work) error) error {
	t := newTask(sess, o)
	defer t.in.Stop()
	if req.Bind {
		if err := flags.CheckNear(sess, req.Directory); err != nil {
			return t.failed(err)
		}
	}
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
	if name := cmp.Or(o.sandbox, t.goesOn); name != "" {
		if err := o.checkMade(covered, t.client, name); err != nil {
			return t.failed(err)
		}
	}
	run, err := t.follow(covered, cancel, req)
	if err != nil && o.made && t.run.ID == "" {
		t.Say.Line("the sandbox of the dev container stays: %s", t.Command("info", req.Sandbox))
	}
	if err != nil {
		return t.failed(err)
	}
	if o.detach {
		return sess.Print(run.ID + "\n")
	}
	return t.conclude(ctx, run, settle)
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
		var skipped string
		earlier, skipped, err = lastConversation(ctx, t.client, t.Far(), t.o.Agent, dir)
		if err != nil {
			return "", err
		}
		if skipped != "" {
			t.tell("%s", skipped)
		}
		t.tell("going on with %s of %s, in the sandbox %s", earlier.ID, ui.Ago(time.Since(earlier.StartedAt)),
			cmp.Or(earlier.SandboxName, earlier.Sandbox))
	default:
		earlier, err = t.client.Run(ctx, t.o.resume)
	}
	t.directory, t.goesOn = earlier.Directory, earlier.Sandbox
	if t.Far() && err == nil && t.o.resume != lastRun { // the directory of a run of another machine is not of this one
		s, err := t.client.Sandbox(ctx, earlier.Sandbox)
		if t.directory = ""; err == nil && s.Repository != nil {
			t.directory = flags.LocalFolder(s.Repository.Source)
		}
	}
	return earlier.ID, err
}

// failed reports the error of a task that did not become a run, or of a run whose end is unknown.
func (t *task) failed(err error) error {
	if t.JSON && !errors.Is(err, syscall.EPIPE) && cove.ErrorCode(err) != cove.Canceled {
		t.PrintJSONLine(session.ProblemOf(t.Session, err))
	}
	return t.in.Explain(err)
}

// follow follows the task to its end, or to its beginning when it goes on by
// itself. A signal interrupts the agent, and a second one ends it.
func (t *task) follow(ctx context.Context, leave context.CancelFunc, req api.RunRequest) (api.Run, error) {
	steps, dir := t.NewSteps(), req.Directory
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
			} else {
				following := t.begun()
				if t.view != nil && dir != "" && !req.Bind {
					t.sayLeftOut(following, dir)
				}
			}
			return nil
		},
		Message:  t.message,
		Log:      t.log,
		Decision: t.decision,
		Holds:    func(all []api.Hold) error { asker.Take(all); return nil },
	}
	req, err := sendFolder(ctx, t, req, s.Progress)
	run := t.run
	if err == nil {
		run, err = t.client.StartRun(ctx, req, s)
	}
	if err != nil && t.run.ID != "" && t.o.detach && t.in.First() == 0 {
		return t.run, nil
	}
	if err != nil && t.view != nil {
		steps.Fail()
	}
	if err != nil && t.run.ID != "" {
		t.screen.Apart(t.sayLost)
	}
	return run, err
}

// sendFolder sends the directory that a run works on a copy of, if the server is of another machine.
func sendFolder(ctx context.Context, t *task, req api.RunRequest,
	step func(api.Progress) error) (api.RunRequest, error) {
	if req.Bind || req.New == nil || !t.Far() {
		return req, nil
	}
	asked := req.New.Repository
	if req.Directory != "" {
		asked = &api.RepositoryRequest{Source: req.Directory, Uncommitted: true, Ignored: req.Ignored}
	}
	t.sent = req.Directory
	made := *req.New
	req.New, req.Directory, req.Ignored = &made, "", nil
	check := func(r *api.RepositoryRequest) error {
		made.Repository = r
		return t.client.CheckRun(ctx, req)
	}
	sent, err := interact.SendFolder(ctx, t.Session, t.client, asked, check, func(p api.Progress) { _ = step(p) })
	made.Repository = sent
	return req, err
}

func (t *task) show() {
	if t.o.quiet || t.JSON {
		return
	}
	t.view = newView(t.screen.Stderr, t.columns)
	t.view.say, t.view.color, t.view.verbose = t.screen.Apart, t.Say.Color, t.o.verbose
}

// askTerminal returns the terminal at which the user can be asked, or nil.
func (t *task) askTerminal() *os.File { return t.o.askTerminal(t.Session) }

// columns is how wide the terminal is; 0 where there is none.
func (t *task) columns() int {
	if !ui.IsTerminal(t.Err) {
		return 0
	}
	return ui.Columns(t.Err)
}

// begun says what works where, and returns a context that ends when it is no longer followed.
func (t *task) begun() context.Context {
	where, r := "", t.run
	switch {
	case r.Bind:
		where = ", on " + r.Directory + " itself"
	case cmp.Or(r.Directory, t.sent) != "":
		where = ", on a copy of " + cmp.Or(r.Directory, t.sent)
	}
	if t.view != nil {
		t.Say.Line("%s works in the sandbox %s%s",
			strings.TrimSpace(r.Agent+" "+r.Version), cmp.Or(r.SandboxName, r.Sandbox), where)
	}
	interact.SayExposed(t.Session, r.Exposes)
	return t.follows()
}

// sayLeftOut prints what the copy of a directory lacks, as soon as it is known.
func (t *task) sayLeftOut(following context.Context, dir string) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(following)) // a short run does not end it
	var left interact.LeftOut
	left.Look(ctx, &api.RepositoryRequest{Source: dir, Uncommitted: true, Ignored: t.o.Ignored})
	t.ticks.Go(func() {
		defer cancel()
		left.Await(following)
		if all := left.Lines(nil); len(all) > 0 {
			t.screen.Apart(func() { t.Say.Lines(all...) })
		}
	})
}

// follows shows from now on how the agent gets along, and has signals stop it. The context ends with that.
func (t *task) follows() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.ended = cancel
	t.in.OnSignal(func() { t.interrupt(false) }, func() { t.interrupt(true) })
	if t.view == nil {
		return ctx
	}
	t.view.doing(t.run.Agent + " works")
	if t.screen.Terminal == nil || t.Getenv("TERM") == "dumb" {
		return ctx
	}
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
	return ctx
}

func (t *task) endBelow() {
	t.ended()
	t.ticks.Wait()
	t.screen.Below("")
	t.screen.Restore()
}

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
	if t.JSON {
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
	rows := ui.Facts{{"run", t.Command("runs", "show", t.run.ID)}}
	if name := cmp.Or(t.run.SandboxName, t.run.Sandbox); name != "" && !t.run.Bind {
		rows.Add("its work", t.Command("diff", name))
	}
	t.SayFacts(rows)
}

func (t *task) conclude(ctx context.Context, run api.Run, settle func(*task, context.Context, work) error) error {
	t.Exit = exitOfRun(run, t.in.First())
	if err := t.printAnswer(run); err != nil {
		return err
	}
	if t.view != nil {
		t.view.end()
	}
	if run.Status == api.RunError || run.Error != nil { // the program of an agent that has failed may say why
		t.Say.Fail(runError(run))
		if t.JSON && run.Error != nil {
			t.PrintJSONLine(session.ProblemOf(t.Session, runError(run)))
		}
	}
	sayMade(t, run.Made)
	if text := report.RunHistory(run); text != "" {
		t.Say.Line("%s", text)
	}
	if t.view != nil {
		t.Say.Line("%s", runText(run))
		if run.ID != "" {
			t.SayFacts(ui.Facts{{"transcript", t.Command("runs", "show", run.ID)}})
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

// sayMade says what the sandbox has made in mounts, each once.
func sayMade(t *task, made []api.Made) {
	for _, note := range report.MadeNotes(made) {
		if !slices.Contains(t.noted, note) {
			t.noted = append(t.noted, note)
			t.Say.Line("%s", note)
		}
	}
}

// printAnswer prints what the agent has answered, unless it is on the screen.
func (t *task) printAnswer(run api.Run) error {
	text := run.Result
	switch {
	case t.JSON, run.Status == api.RunError: // the error says what there is to say
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

// tell prints a message that --quiet and --json leave out.
func (t *task) tell(format string, args ...any) {
	if !t.o.quiet && !t.JSON {
		t.Say.Line(format, args...)
	}
}

// defaultTimeout is how long a task without a sandbox may take where neither flags nor profile set a limit.
const defaultTimeout = 30 * time.Minute

func runText(r api.Run) string {
	parts := []string{}
	if r.Status == api.RunFailed && r.ExitCode != nil && *r.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	if r.EndedAt != nil {
		parts = append(parts, ui.TimeText(r.EndedAt.Sub(r.StartedAt)))
	}
	if n := r.Usage.Turns; n > 0 {
		parts = append(parts, ui.Counted(n, "turn", "turns"))
	}
	if u := usedText(r.Usage); u != "" {
		parts = append(parts, u)
	}
	took := ""
	if len(parts) > 0 {
		took = " (" + strings.Join(parts, ", ") + ")"
	}
	if r.Status == api.RunLimit {
		return limitText(r) + took
	}
	ended := map[string]string{
		api.RunSucceeded: "has done it", api.RunFailed: "has not done it", api.RunInterrupted: "was interrupted",
	}[r.Status]
	return r.Agent + " " + cmp.Or(ended, "has not come to an end") + took
}

// limitText names the limit that ended a task, and the flag that changes it.
func limitText(r api.Run) string {
	switch r.LimitHit {
	case "turns":
		return report.Stopped("out of turns", "", "--max-turns")
	case "budget":
		text := report.Stopped("the budget for models is used up", "", "--budget")
		if r.Error != nil {
			text += ": " + r.Error.Error // whose it is, and how much
		}
		return text
	}
	return cmp.Or(report.Verdict(api.Execution{LimitHit: r.LimitHit, Limits: r.Limits, Timeout: r.Timeout}),
		"stopped by a limit: "+r.LimitHit)
}

func runError(r api.Run) error {
	if r.Error == nil {
		return cove.Errorf(cove.Internal, "the run %s did not finish, and no reason was recorded", r.ID)
	}
	return &cove.Error{
		Code:    cove.Code(r.Error.Code),
		Message: strings.TrimSuffix(r.Error.Error, " ("+r.Error.Hint+")"),
		Hint:    r.Error.Hint,
	}
}

// exitOfRun is the exit code for a run that has ended. stopped is the user's signal that interrupted it, or 0.
func exitOfRun(r api.Run, stopped syscall.Signal) int {
	switch r.Status {
	case api.RunSucceeded:
		return 0
	case api.RunFailed:
		return ui.ExitAgent
	case api.RunInterrupted:
		return ui.ExitSignal(cmp.Or(stopped, syscall.SIGINT))
	case api.RunLimit:
		if r.LimitHit == string(cove.LimitTimeout) {
			return ui.ExitTimeout
		}
		return ui.ExitSignal(syscall.SIGKILL)
	}
	return ui.ExitCode(runError(r))
}
