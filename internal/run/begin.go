package run

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// maxPrompt bounds each text of a task, in bytes.
const maxPrompt = 1 << 20

// Begin gives an agent a task of the principal's, and returns when its program runs. When ctx ends before that, and on
// an error, nothing runs, and a sandbox that was made for it is gone. Errors: InvalidArgument, NotFound, Forbidden,
// Conflict, Unsupported, RuntimeMissing, and those of CreateSandbox.
func (r *Runner) Begin(ctx context.Context, who cove.Principal, q Request) (_ store.Run, err error) {
	if q.Progress == nil {
		q.Progress = func(workspace.Step) {}
	}
	p, err := r.prepare(ctx, who, &q)
	if err == nil && p.eq.Missing {
		p.eq, err = r.o.Agents.Install(ctx, p.want, q.Progress)
		p.record.Version = p.eq.Version
	}
	if err != nil {
		return store.Run{}, err
	}
	record := p.record
	release := func() {}
	if q.ID == "" { // else it has a place as an execution
		if release, err = r.o.Places.Hold(ctx, who, false); err != nil {
			return store.Run{}, err
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := r.begins.begin(record.ID, record.Spec.Own); err != nil {
		return store.Run{}, err
	}
	var run store.Run
	in, err := r.enterSandbox(ctx, who, q, p.eq, &record)
	if err == nil {
		run, err = r.start(ctx, in, record, p.eq, p.command, release)
	}
	var stray error
	if err != nil && record.Spec.Own && record.Sandbox != "" {
		_, stray = r.o.Sandboxes.Destroy(context.WithoutCancel(ctx), who, record.Sandbox, false)
	}
	r.begins.end(record.ID, stray != nil)
	return run, errors.Join(err, stray)
}

// Check refuses a request that Begin would refuse for what it says, before anything is fetched or made: for its agent,
// the provider and the key of its models, its network and its limits. It does not look at the repository. Errors: those
// of Begin.
func (r *Runner) Check(ctx context.Context, who cove.Principal, q Request) error {
	_, err := r.prepare(ctx, who, &q)
	return err
}

// prepared is a run that may begin.
type prepared struct {
	want    fit.Want
	eq      fit.Equipment // without a layer, where the agent is missing
	record  store.Run
	command agent.Command
}

// prepare settles what a run needs, and refuses what cannot be. It fetches and makes nothing.
func (r *Runner) prepare(ctx context.Context, who cove.Principal, q *Request) (p prepared, err error) {
	if err := check(*q); err != nil {
		return p, err
	}
	if err := r.goOn(ctx, who, q); err != nil {
		return p, err
	}
	p.want = fit.Want{Agent: q.Agent, Model: q.Task.Model, WorkDir: path.Join(cove.Workspace, q.New.WorkDir),
		Provider: q.Provider, Access: q.Access, Network: q.New.Network, Tokens: q.tokens,
		Home: q.New.Home, Hooks: q.hooks}
	if p.eq, err = r.o.Agents.Equip(p.want, who.IsOwner()); err != nil {
		return p, err
	}
	if len(q.New.Home) > 0 {
		if q.New.Home, err = p.eq.Home(q.New.Home); err != nil {
			return p, err
		}
	}
	p.record = r.plan(who, *q, p.eq)
	q.Task.Dir = p.record.Spec.Dir
	if p.command, err = p.eq.Command(q.Task); err != nil {
		return p, err
	}
	network := q.network
	if p.record.Spec.Own {
		made := forRun(p.eq.Fit(who, q.New), p.record)
		if err := r.o.Sandboxes.Check(ctx, who, made); err != nil {
			return p, err
		}
		network = made.Network
	}
	return p, r.o.Agents.Ready(ctx, who, p.eq, network)
}

// check refuses a malformed request.
func check(q Request) error {
	switch {
	case strings.TrimSpace(q.Task.Prompt) == "":
		return cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("say what is to be done")
	case len(q.Task.Prompt) > maxPrompt || len(q.Task.Instructions) > maxPrompt || len(q.Task.Schema) > maxPrompt:
		return cove.Errorf(cove.TooLarge, "prompt, instructions and schema may have %d KiB each", maxPrompt>>10).
			WithHint("put it into a file of the workspace, and name that")
	case !utf8.ValidString(q.Task.Prompt) || !utf8.ValidString(q.Task.Instructions) ||
		strings.ContainsRune(q.Task.Prompt+q.Task.Instructions, 0):
		return cove.Errorf(cove.InvalidArgument, "prompt and instructions are text, without NUL bytes")
	case q.Timeout < 0 || q.Timeout > MaxTimeout:
		return cove.Errorf(cove.InvalidArgument, "a run may not take %s", q.Timeout).
			WithHint("give at most %g seconds", MaxTimeout.Seconds())
	case q.Resume != "" && q.Sandbox != "":
		return cove.Errorf(cove.InvalidArgument, "a run that goes on does so in its own sandbox").
			WithHint("leave sandbox out")
	}
	if err := q.Task.Check(); err != nil {
		return err
	}
	if q.Task.Schema == nil {
		return nil
	}
	_, err := jsonschema.Compile(q.Task.Schema)
	return err
}

// goOn fills in what an earlier run, or the sandbox, says.
func (r *Runner) goOn(ctx context.Context, who cove.Principal, q *Request) error {
	if q.Resume != "" {
		earlier, err := r.find(ctx, who, q.Resume)
		switch {
		case err != nil:
			return err
		case earlier.Status == store.RunRunning:
			return cove.Errorf(cove.Conflict, "the run %s has not ended", earlier.ID).
				WithHint("end it first: cove runs interrupt %s", earlier.ID)
		case earlier.Session == "":
			return cove.Errorf(cove.Conflict, "the run %s has said no name for its conversation, and cannot go on", earlier.ID).
				WithHint("begin anew, in its sandbox: --sandbox %s", earlier.SandboxName)
		case q.Agent != "" && q.Agent != earlier.Agent:
			return cove.Errorf(cove.InvalidArgument, "the run %s was %s's", earlier.ID, earlier.Agent).
				WithHint("leave the agent out")
		}
		if _, err := r.o.Sandboxes.Find(ctx, who, earlier.Sandbox); cove.ErrorCode(err) == cove.NotFound {
			return cove.Errorf(cove.Conflict, "the run %s cannot go on: its sandbox %s is gone", earlier.ID,
				cmp.Or(earlier.SandboxName, earlier.Sandbox)).
				WithHint("\"cove runs show %s\" has what became of it; --keep keeps the sandbox of a run", earlier.ID)
		}
		q.Agent, q.Sandbox, q.Task.Session = earlier.Agent, earlier.Sandbox, earlier.Session
		q.before, q.directory, q.bind = earlier.Spec.Before.Plus(earlier.Usage), earlier.Directory, earlier.Bind
	}
	q.tokens = len(sandbox.Exposed(q.New.Mounts)) > 0
	if q.Sandbox != "" {
		there, err := r.o.Sandboxes.Find(ctx, who, q.Sandbox)
		if err != nil {
			return err
		}
		q.Agent, q.tokens = cmp.Or(q.Agent, there.Spec.Agent), len(sandbox.Exposed(there.Spec.Mounts)) > 0
		q.hooks, q.network = there.Spec.Hooks && there.Spec.Agent == q.Agent, there.Spec.Network
	}
	if q.Agent == "" {
		return cove.Errorf(cove.InvalidArgument, "no agent is named").
			WithHint("\"cove agents list\" shows those that there are")
	}
	return nil
}

// plan returns the record of a new run. It is pure, except for the id and the time.
func (r *Runner) plan(who cove.Principal, q Request, eq fit.Equipment) store.Run {
	id := cmp.Or(q.ID, cove.NewRunID())
	now := r.o.Clock.Now().UTC().Truncate(time.Microsecond)
	record := store.Run{
		ID: id, Agent: eq.Agent, Version: eq.Version, Model: q.Task.Model, Profile: q.New.Profile, Prompt: q.Task.Prompt,
		Status: store.RunRunning, Session: q.Task.Session, CreatedBy: who.String(), StartedAt: now,
		Directory: q.directory, Bind: q.bind,
		Spec: store.RunSpec{
			Own: q.Sandbox == "", Keep: q.Keep, Ends: q.Ends, Dir: "/tmp/cove-" + string(id), Schema: q.Task.Schema,
			Deadline: now.Add(cmp.Or(q.Timeout, DefaultTimeout)), Before: q.before,
		},
	}
	if g := q.New.Repository; g != nil && path.IsAbs(g.Source) {
		record.Directory = g.Source
	}
	if q.New.Bind != "" {
		record.Directory, record.Bind = q.New.Bind, true
	}
	return record
}

// enterSandbox makes the sandbox of a run, or finds the one that it is to work in, and starts that.
func (r *Runner) enterSandbox(ctx context.Context, who cove.Principal, q Request, eq fit.Equipment,
	record *store.Run) (in sandbox.Inside, err error) {
	var there sandbox.View
	if record.Spec.Own {
		there, err = r.o.Sandboxes.Create(ctx, who, forRun(eq.Fit(who, q.New), *record), q.Progress)
	} else if there, err = r.o.Sandboxes.Find(ctx, who, q.Sandbox); err == nil && there.State == cove.StateStopped {
		q.Progress(workspace.Step{Text: "starting the sandbox"})
		there, err = r.o.Sandboxes.Start(ctx, who, string(there.ID))
	}
	if err != nil {
		return in, err
	}
	record.Sandbox, record.SandboxName, record.Spec.Box = string(there.ID), there.Name, string(there.Within)
	if in, err = r.o.Sandboxes.Enter(ctx, who, string(there.ID)); err != nil {
		return in, err
	}
	record.Exposes, record.Spec.Provider = sandbox.Exposed(in.Spec.Mounts), eq.ProviderIn(in.Spec.Network)
	record.Spec.Limits, record.Spec.Engine = in.Spec.Limits, in.Spec.Engine
	record.Spec.Limits.Timeout = record.Spec.Deadline.Sub(record.StartedAt)
	for _, l := range eq.Layers {
		if !slices.ContainsFunc(in.Spec.Layers, func(has cove.Layer) bool { return has.Target == l.Target }) {
			return in, cove.Errorf(cove.Conflict, "the sandbox %s was not made for %s, whose program is not in it", in.Name,
				eq.Agent).WithHint("make one that is: cove new --agent %s", eq.Agent)
		}
	}
	return in, nil
}

// forRun returns the request for the sandbox of a run. It is pure.
func forRun(q sandbox.Request, of store.Run) sandbox.Request {
	q.Spec = q.Spec.Over(newDefaults)
	q.Labels = maps.Clone(q.Labels)
	if q.Labels == nil {
		q.Labels = map[string]string{}
	}
	q.Labels[RunLabel] = string(of.ID)
	return q
}

// start places files, starts the program, and has the run attended.
func (r *Runner) start(ctx context.Context, in sandbox.Inside, record store.Run, eq fit.Equipment,
	command agent.Command, release func()) (store.Run, error) {
	if err := place(ctx, in, record.Spec.Dir, eq.Files, command.Files); err != nil {
		return store.Run{}, err
	}
	t, err := newTranscript(r.dirOf(record.ID), r.o.MaxOutput)
	if err != nil {
		return store.Run{}, err
	}
	l := r.newLive(record, t, eq.Parser(record.Spec.Before))
	l.release = release
	if err := r.enter(l); err != nil {
		t.end(false)
		return store.Run{}, err
	}
	record.Spec.Input = &command.Stdin
	// The record comes first: a server that finds the program has to know its run.
	err = r.o.Store.For(record.Owner()).AddRun(ctx, record)
	if err == nil {
		env := maps.Clone(eq.Env)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, command.Env)
		args := slices.Clone(command.Args)
		if eq.Path != "" && len(args) > 0 && !strings.Contains(args[0], "/") {
			args[0] = path.Join(eq.Path, args[0])
		}
		var p *sandbox.Process
		p, err = r.o.Processes.Start(ctx, record.Owner(), record.Sandbox,
			sandbox.ProcessRequest{Name: string(record.ID), Args: args, Env: env, Stdin: command.Stdin})
		if err == nil {
			l.begin(p)
		} else {
			r.ends.record(end{r.concluded(record, ending{err: err}, record, nil), func() {}})
		}
	}
	if err != nil {
		t.end(false)
		close(l.done)
		r.leave(l)
		return store.Run{}, err
	}
	go r.attend(l, record)
	return record, nil
}

// place writes the files that an agent finds: those of its home where there are
// none, and those of its task into a directory of that alone.
func place(ctx context.Context, in sandbox.Inside, dir string, home []agent.File, task map[string]string) error {
	g := in.Guest.Guest()
	write := func(at, content string) error {
		err := g.WriteFile(ctx, at, 0o600, []byte(content))
		var failure *guest.Failure
		if errors.As(err, &failure) && failure.Kind == guest.FailNoSpace {
			return cove.Errorf(cove.StorageFull, "there is no space left in the sandbox %s for an agent's files", in.Name).
				WithHint("make one with more: --disk")
		}
		return err
	}
	for _, f := range home {
		at := path.Join(cove.Home, f.Path)
		_, err := g.Stat(ctx, at)
		if failure := new(guest.Failure); errors.As(err, &failure) && failure.Kind == guest.FailNotFound {
			err = write(at, f.Content)
		}
		if err != nil {
			return err
		}
	}
	if len(task) == 0 {
		return nil
	}
	if err := g.Mkdir(ctx, dir, 0o700); err != nil {
		return err
	}
	for at, content := range task {
		if err := write(at, content); err != nil {
			return err
		}
	}
	return nil
}
