package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/agent/fit"
	"github.com/cove-sandbox/cove/internal/profile"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
)

// An agent may stand where a language does: then the code is its prompt, work_dir the directory that it works on, and
// its output its messages, one in each line. Such an execution is a run, and recorded as that.

// asRun turns a request to execute into one for a run, when its language is an agent.
func (s *Server) asRun(ctx context.Context, ex *exchange, q api.ExecuteRequest) (r run.Request, is bool, err error) {
	if _, unknown := runtime.Lookup(q.Language); unknown == nil || s.Runs == nil || s.Agents == nil {
		return r, false, nil
	}
	known, err := s.Agents.Agents(ctx)
	if err != nil {
		return r, true, err
	}
	if !slices.ContainsFunc(known, func(a fit.Listed) bool { return a.Name == q.Language }) {
		return r, false, nil
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
	if r.New.Spec, err = withProfile(s, q.Profile, executionSpec(q), profile.Apply); err != nil {
		return r, true, err
	}
	r.Timeout, r.New.Limits.Timeout, r.New.Agent = r.New.Limits.Timeout, 0, "" // which sees to what it needs by itself
	return r, true, s.judge(ctx, ex.who, &r.New.Spec, "work_dir")
}

// executeAgent runs an agent and hands out what it says. The run is interrupted when the caller leaves.
func (s *Server) executeAgent(ctx context.Context, who cove.Principal, q run.Request, begun func(store.Run) error,
	take func(run.Event) error) (store.Run, error) {
	r, err := s.Runs.Begin(ctx, who, q)
	if err != nil {
		return r, err
	}
	ended, err := s.Runs.Follow(ctx, who, string(r.ID), 0, begun, take)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && cove.ErrorCode(err) != cove.Unavailable {
		s.Runs.Interrupt(context.WithoutCancel(ctx), who, string(r.ID), false) // who may have ended meanwhile
	}
	return ended, err
}

// executeAgentWhole is POST /execute of an agent.
func (s *Server) executeAgentWhole(ctx context.Context, ex *exchange, q run.Request) (*answer[api.Execution], error) {
	var stdout, stderr bytes.Buffer
	truncated := false
	keep := func(b *bytes.Buffer, p []byte) {
		if b.Len()+len(p) > store.MaxOutput {
			truncated = true
			return
		}
		b.Write(p)
	}
	ended, err := s.executeAgent(ctx, ex.who, q, func(r store.Run) error {
		ex.w.Header().Set(api.ExecutionIDHeader, string(r.ID))
		return nil
	}, func(e run.Event) error {
		if e.Message != nil {
			keep(&stdout, messageLine(*e.Message))
		}
		keep(&stderr, []byte(e.Log))
		return nil
	})
	if err != nil {
		return nil, err
	}
	done := executionOf(ended)
	done.Output, done.Stderr, done.Truncated = stdout.String(), stderr.String(), truncated
	return &answer[api.Execution]{done}, nil
}

// streamAgent is POST /execute/stream of an agent.
func (s *Server) streamAgent(ctx context.Context, ex *exchange, q run.Request) {
	events := newEventWriter(ex.w, s.Clock)
	defer events.stop()
	ended, err := s.executeAgent(ctx, ex.who, q, func(r store.Run) error {
		events.begin(cove.ExecutionID(r.ID), s.Heartbeat)
		return nil
	}, func(e run.Event) error {
		switch {
		case e.Message != nil:
			return events.Stdout(messageLine(*e.Message))
		case e.Asked:
			events.Holds(e.Holds)
		case e.Log != "":
			return events.Stderr([]byte(e.Log))
		}
		return nil
	})
	if err != nil {
		s.breakOff(ex, events, err)
		return
	}
	events.finish(api.EventDone, executionOf(ended))
}

// messageLine is a message as a line of NDJSON.
func messageLine(m api.Message) []byte {
	line, err := json.Marshal(m)
	if err != nil {
		return nil // as none that was recorded is
	}
	return append(line, '\n')
}

// executionOf is a run as an execution, without its output. It is pure.
func executionOf(r store.Run) api.Execution {
	e := api.Execution{
		ID: string(r.ID), Language: r.Agent, ExitCode: -1, LimitHit: string(r.Limit), CreatedAt: r.StartedAt,
		FinishedAt: r.EndedAt, SecurityEvents: []api.SecurityEvent{},
		Status: map[store.RunStatus]api.Status{
			store.RunRunning: api.StatusRunning, store.RunSucceeded: api.StatusCompleted, store.RunFailed: api.StatusCompleted,
			store.RunInterrupted: api.StatusKilled, store.RunLimit: api.StatusLimited, store.RunError: api.StatusFailed,
		}[r.Status],
	}
	if r.Limit == cove.LimitTimeout {
		e.Status = api.StatusTimeout
	}
	if r.ExitCode != nil {
		e.ExitCode = *r.ExitCode
	}
	if r.Status == store.RunFailed && e.ExitCode == 0 {
		e.ExitCode = 1 // it has said that it could not do it
	}
	if r.EndedAt != nil {
		e.Duration = r.EndedAt.Sub(r.StartedAt).Seconds()
	}
	if r.Error != nil {
		e.Error = r.Error.Error
	}
	return e
}
