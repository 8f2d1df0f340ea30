package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
)

// executionRoutes serve executions of snippets. An agent may stand where a language does: then the code is its prompt,
// work_dir the directory that it works on, and its output its messages, one in each line. Such an execution is a run as
// well, recorded as both, in a sandbox that ends with it.
type executionRoutes struct{ *edge }

// run executes and counts.
func (s executionRoutes) run(ctx context.Context, who cove.Principal, r execution.Request,
	started func(cove.ExecutionID), out process.Output) (execution.Result, error) {
	began := s.Clock.Monotonic()
	result, err := s.Executor.Execute(ctx, who, r, started, out)
	language := "other"
	if known, err := runtime.Lookup(r.Language); err == nil {
		language = known.Name
	}
	s.metrics.execution(language, result, err, s.Clock.Since(began))
	return result, err
}

// noExecution answers ids that are none like ids that name nothing.
func noExecution(id string) error { return cove.Errorf(cove.NotFound, "no execution %.64q", id) }

// asRun turns a request to execute into one for a run, when its language is an agent.
func (s executionRoutes) asRun(ctx context.Context, ex *exchange,
	q api.ExecuteRequest) (r run.Request, is bool, err error) {
	if _, unknown := runtime.Lookup(q.Language); unknown == nil || s.Runs == nil || s.Agents == nil {
		return r, false, nil
	}
	known, err := s.Agents.Agents(ctx)
	if err != nil {
		return r, true, err
	}
	i := slices.IndexFunc(known, func(a fit.Listed) bool { return a.Name == q.Language })
	if i < 0 {
		return r, false, nil
	}
	if err := ex.caller().Need(access.Agents); err != nil {
		return r, true, err
	}
	if len(q.Args) > 0 || q.Stdin != "" || q.StdinStream {
		return r, true, cove.Errorf(cove.InvalidArgument, "an agent takes no arguments and no standard input").
			WithHint("say it in the code, which is its prompt")
	}
	r = run.Request{Task: agent.Task{Prompt: q.Code}, Agent: q.Language}
	if err := errors.Join(checkTimeout(q.Timeout), checkTokens(q.Mounts)); err != nil {
		return r, true, err
	}
	if r.New.Files, err = files(q.Files); err != nil {
		return r, true, err
	}
	if r.New.Spec, err = withProfile(s.edge, q.Profile, executionSpec(q), profile.Apply); err != nil {
		return r, true, err
	}
	if r.New.Network, err = s.withModels(ctx, ex.who, known[i], "", r.New.Network); err != nil {
		return r, true, err
	}
	r.Timeout, r.New.Limits.Timeout, r.New.Agent = r.New.Limits.Timeout, 0, "" // which sees to what it needs by itself
	return r, true, s.judge(ctx, ex.who, &r.New.Spec, "work_dir")
}

// goesOnText is why an agent's execution has ended although its run has not.
const goesOnText = "the server was told to stop while it ran; its run goes on with the next server"

// runAgent runs an agent as an execution. The end of ctx, and an out that takes nothing any more, kill it. started is
// told the id once the agent's program runs.
func (s executionRoutes) runAgent(ctx context.Context, who cove.Principal, q run.Request,
	started func(cove.ExecutionID), out process.Output) (execution.Result, error) {
	began := s.Clock.Monotonic()
	job := execution.Job{Language: q.Agent, Code: []byte(q.Task.Prompt), Spec: q.New.Spec}
	job.Spec.Limits.Timeout = cmp.Or(q.Timeout, run.DefaultTimeout)
	job.Do = func(ctx context.Context, id cove.ExecutionID, out process.Output) (execution.Result, error) {
		q.ID, q.Ends = id.Run(), true
		r, err := s.Runs.Begin(ctx, who, q)
		if err != nil {
			return execution.Result{}, err
		}
		seen := 0
		ended, err := s.Runs.Follow(ctx, who, string(r.ID), 0, func(store.Run) error {
			started(id)
			return nil
		}, func(e run.Event) error {
			seen = e.Seq
			return tell(out, e)
		})
		if err != nil && cove.ErrorCode(err) != cove.Shutdown { // which is this server's own end
			ctx = context.WithoutCancel(ctx)
			s.Runs.Interrupt(ctx, who, string(r.ID), true) // it may have ended meanwhile
			ended, err = s.Runs.Follow(ctx, who, string(r.ID), seen, func(store.Run) error { return nil },
				func(run.Event) error { return nil })
		}
		if cove.ErrorCode(err) == cove.Shutdown {
			return execution.Result{Killed: true, Shutdown: true, Failure: goesOnText}, nil
		}
		return resultOf(ended), err
	}
	result, err := s.Executor.Do(ctx, who, job, out)
	s.metrics.execution(q.Agent, result, err, s.Clock.Since(began))
	return result, err
}

// tell writes an event of a run as output: a message to stdout, a log to stderr.
func tell(out process.Output, e run.Event) error {
	switch {
	case e.Message != nil:
		return out.Stdout(messageLine(*e.Message))
	case e.Asked:
		if to, ok := out.(execution.Asked); ok {
			to.Holds(e.Holds)
		}
	case e.Log != "":
		return out.Stderr([]byte(e.Log))
	}
	return nil
}

// streamAgent is POST /execute/stream of an agent.
func (s executionRoutes) streamAgent(ctx context.Context, ex *exchange, q run.Request) {
	events := newEventWriter(ex, s.Clock)
	defer events.stop()
	result, err := s.runAgent(ctx, ex.who, q, func(id cove.ExecutionID) { events.begin(id, s.Heartbeat) }, events)
	s.end(ex, events, result, err)
}

// end writes the last event of a stream, or answers what has not begun.
func (s executionRoutes) end(ex *exchange, events *eventWriter, result execution.Result, err error) {
	result.Output.Release() // it was handed out already
	switch {
	case err == nil && events.begun():
		events.finish(api.EventDone, executionOf(result))
	case err == nil:
		writeError(ex, cove.Errorf(cove.Internal, "the execution ended before it began"))
	default:
		breakOff(ex, events, err)
	}
}

// messageLine is a message as a line of NDJSON.
func messageLine(m api.Message) []byte {
	line, err := json.Marshal(m)
	if err != nil {
		return nil // as none that was recorded is
	}
	return append(line, '\n')
}

// resultOf returns how a run ended as the result of an execution. It is pure.
func resultOf(r store.Run) execution.Result {
	e := execution.Result{Engine: r.Spec.Engine, ExitCode: -1, Limit: r.Limit, Killed: r.Status == store.RunInterrupted,
		Usage: r.Spec.Used, Models: r.Spec.Models, Limits: r.Spec.Limits}
	if r.ExitCode != nil {
		e.ExitCode = *r.ExitCode
	}
	if r.Status == store.RunFailed && e.ExitCode == 0 {
		e.ExitCode = 1 // it has said that it could not do it
	}
	if r.EndedAt != nil {
		e.Duration = r.EndedAt.Sub(r.StartedAt)
	}
	if r.Status == store.RunError {
		e.Failure = "it did not come to an end"
		if r.Error != nil {
			e.Failure = r.Error.Error
		}
	}
	return e
}
