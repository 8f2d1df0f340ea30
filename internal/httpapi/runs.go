package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// runRoutes serve what agents are given to do.
type runRoutes struct{ *edge }

// runErrors are the errors of routes on runs.
var runErrors = append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...)

// add adds the routes of what agents are given to do.
func (s runRoutes) add() {
	route(s, huma.Operation{OperationID: "start-run", Method: http.MethodPost, Path: "/runs", Tags: []string{"agents"},
		Summary: "Give an agent a task, and follow it",
		Description: "Server-sent events: progress carries a Progress, before the agent begins; run the Run, once it has; " +
			"then message a Message, log an OutputEvent, decision a Decision, holds a HoldList whenever what waits for an " +
			"answer has changed; " +
			"done the Run as it ended, error an Error; done or error is the last. Unless detach is said, the run is " +
			"interrupted when the caller leaves; a caller who only reads slowly is left behind, and may follow again. Lines " +
			"that begin with a colon are heartbeats.",
		Responses: s.runResponses(),
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge, cove.RuntimeMissing, cove.Overloaded},
		runErrors...), s.startRun)

	route(s, huma.Operation{OperationID: "check-run", Method: http.MethodPost, Path: "/runs/check",
		Tags: []string{"agents"}, DefaultStatus: http.StatusNoContent,
		Summary: "Ask whether a task could begin",
		Description: "Takes the body of POST /runs, and refuses what that would refuse before anything is fetched or made: " +
			"an agent, provider, credential or profile that is not there, a key that is missing, limits and networks that " +
			"cannot be. The repository is not looked at, and an upload need not be there. Nothing is made.",
	}, append([]cove.Code{cove.Unsupported, cove.TooLarge, cove.RuntimeMissing}, runErrors...), s.checkRun)

	route(s, huma.Operation{OperationID: "list-runs", Method: http.MethodGet, Path: "/runs", Tags: []string{"agents"},
		Summary:     "List what agents were given to do, newest first",
		Description: "By the caller; all of it for the machine's owner.",
	}, storeErrors, s.listRuns)

	route(s, huma.Operation{OperationID: "get-run", Method: http.MethodGet, Path: "/runs/{run}", Tags: []string{"agents"},
		Summary:     "Get a run",
		Description: "By its id, with what it changed once it has ended.",
	}, runErrors, s.getRun)

	route(s, huma.Operation{OperationID: "follow-run", Method: http.MethodGet, Path: "/runs/{run}/events",
		Tags:    []string{"agents"},
		Summary: "Follow a run from its beginning",
		Description: "The events of POST /runs but progress, also of a run that has ended: from the beginning, or after " +
			"Last-Event-ID. Following neither slows a run nor ends it.",
		Responses: s.runResponses(),
	}, runErrors, s.followRun)

	route(s, huma.Operation{OperationID: "interrupt-run", Method: http.MethodPost, Path: "/runs/{run}/interrupt",
		Tags: []string{"agents"}, DefaultStatus: http.StatusNoContent,
		Summary: "Have an agent stop",
		Description: "It is asked to (SIGINT), and killed if it has not ended 15 seconds later; with kill at once. What it " +
			"has done stays.",
	}, runErrors, s.interruptRun)

	route(s, huma.Operation{OperationID: "remove-run", Method: http.MethodDelete, Path: "/runs/{run}",
		Tags: []string{"agents"}, DefaultStatus: http.StatusNoContent,
		Summary: "Remove the record of a run that has ended", Description: "Its sandbox, if it is still there, stays.",
	}, runErrors, s.removeRun)

	route(s, huma.Operation{OperationID: "export-run", Method: http.MethodGet, Path: "/runs/{run}/export",
		Tags:    []string{"agents"},
		Summary: "Get the whole record of a run",
		Description: "A tar archive: run.json, messages.ndjson, stderr.log, decisions.ndjson (what left the sandbox and " +
			"what did not), actions.ndjson (what the audit log has of it, pushes among it), changes.patch where there are " +
			"changes, and TERMINAL.cast for each recording.",
		Responses: map[string]*huma.Response{"200": {Description: "The archive",
			Content: map[string]*huma.MediaType{"application/x-tar": {Schema: &huma.Schema{Type: huma.TypeString,
				Format: "binary"}}}}},
	}, runErrors, s.exportRun)

	route(s, huma.Operation{OperationID: "get-run-recording", Method: http.MethodGet,
		Path: "/runs/{run}/recordings/{terminal}", Tags: []string{"agents"},
		Summary:     "Get the recording of a terminal of a run",
		Description: "As asciicast, version 2. The text is the sandbox's: a terminal obeys what is in it.",
		Responses: map[string]*huma.Response{"200": {Description: "The recording",
			Content: map[string]*huma.MediaType{"application/x-asciicast": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}, runErrors, s.runRecording)
}

type startRunInput struct{ Body api.RunRequest }

// startRun is POST /runs.
func (s runRoutes) startRun(ctx context.Context, in *startRunInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	q, err := s.runRequest(ctx, ex, in.Body)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.beginRun(ctx, ex, q) }}, nil
}

// checkRun is POST /runs/check.
func (s runRoutes) checkRun(ctx context.Context, in *startRunInput) (*struct{}, error) {
	ex := exchangeOf(ctx)
	q, err := s.runRequest(ctx, ex, in.Body)
	if err == nil {
		err = s.Runs.Check(ctx, ex.who, q)
	}
	return nil, err
}

// runRequest turns a wire request into one for the run package.
func (s runRoutes) runRequest(ctx context.Context, ex *exchange, b api.RunRequest) (q run.Request, err error) {
	q = run.Request{
		Task: agent.Task{Prompt: b.Prompt, Model: b.Model, Turns: b.MaxTurns, Instructions: b.Instructions,
			Schema: b.Schema, Extras: extras(b.AgentOptions)},
		Agent: b.Agent, Resume: b.Resume, Sandbox: b.Sandbox, Keep: b.Keep, Detach: b.Detach,
	}
	if b.Timeout < 0 || apispec.Duration(b.Timeout) > run.MaxTimeout {
		return q, cove.Errorf(cove.InvalidArgument, "timeout: %g seconds are not possible", b.Timeout).
			WithHint("give at most %g", run.MaxTimeout.Seconds())
	}
	q.Timeout = apispec.Duration(b.Timeout)
	if b.Sandbox+b.Resume != "" {
		if b.Directory != "" || b.New != nil || b.Bind {
			return q, cove.Errorf(cove.InvalidArgument, "directory, bind and new are about a new sandbox").
				WithHint("leave them out, or sandbox and resume")
		}
		return q, nil
	}
	var wanted api.SandboxRequest
	if b.New != nil {
		wanted = *b.New
	}
	if wanted.IfExists == api.IfExistsReturn {
		return q, cove.Errorf(cove.InvalidArgument, "new.if_exists: new is about a sandbox of the run's own").
			WithHint("name the one that exists in sandbox")
	}
	if p := wanted.Profile; p != "" {
		if q, err = withProfile(s.edge, p, q, ofProfile); err != nil {
			return q, err
		}
	}
	wanted.Agent = "" // which sees to what it needs by itself
	switch {
	case b.Directory == "" && b.Bind:
		return q, cove.Errorf(cove.InvalidArgument, "there is no directory to bind").
			WithHint("give directory, or leave bind out")
	case len(b.Ignored) > 0 && (b.Directory == "" || b.Bind):
		return q, cove.Errorf(cove.InvalidArgument, "ignored is about the copy of a directory").
			WithHint("give directory without bind, or leave ignored out")
	case b.Directory == "":
	case wanted.Repository != nil || wanted.Bind != "":
		return q, cove.Errorf(cove.InvalidArgument, "directory and those of new exclude each other").WithHint("leave one out")
	case b.Bind:
		wanted.Bind = b.Directory
	default:
		dir, err := s.ownDirectory(ctx, ex.who, b.Directory)
		if err != nil {
			return q, err
		}
		wanted.Repository = &api.RepositoryRequest{Source: dir, Uncommitted: true, Ignored: b.Ignored}
		wanted.WorkDir = cmp.Or(wanted.WorkDir, folder.Below(dir))
	}
	shared, name := q.New.Shared, q.New.SharedName
	if b.SharedName != "" {
		shared, name = true, b.SharedName
	}
	q.New, err = s.sandboxRequest(ctx, ex.who, wanted)
	q.New.Agent = "" // of the profile
	if err == nil {
		q.New.Network, err = s.modelsOf(ctx, ex.who, q.Agent, q.Provider, q.New.Network)
	}
	if g := wanted.Repository; g != nil && !g.Uncommitted && !g.Worktree && g.Upload == nil {
		q.New.Shared, q.New.SharedName = shared, name
	} else if b.SharedName != "" {
		return q, cove.Errorf(cove.InvalidArgument, "shared_name is about checkouts of a repository").
			WithHint("name one in new.repository, or leave it out")
	}
	return q, err
}

// modelsOf is withModels for an agent by its name. One that is not declared has no models of its own.
func (s *edge) modelsOf(ctx context.Context, who cove.Principal, name, provider string,
	n *cove.Network) (*cove.Network, error) {
	if s.Agents == nil || who.IsOwner() {
		return n, nil
	}
	known, err := s.Agents.Agents(ctx)
	if err != nil {
		return n, err
	}
	for _, a := range known {
		if a.Name == name {
			return s.withModels(ctx, who, a, provider, n)
		}
	}
	return n, nil
}

// extras are options of an agent as a task has them.
func extras(o api.AgentOptions) agent.Extras {
	x := agent.Extras{AllowedTools: o.AllowedTools, DisallowedTools: o.DisallowedTools, PermissionMode: o.PermissionMode}
	if o.MCPConfig != nil {
		x.MCPConfig, _ = json.Marshal(o.MCPConfig) // it was JSON
	}
	return x
}

// ofProfile fills in a request from a profile. The request's own settings win.
func ofProfile(p api.Profile, q run.Request) (run.Request, error) {
	q.Agent = cmp.Or(q.Agent, p.Agent)
	q.Task.Model, q.Task.Instructions, q.Task.Turns = cmp.Or(q.Task.Model, p.Model),
		cmp.Or(q.Task.Instructions, p.Instructions), cmp.Or(q.Task.Turns, p.MaxTurns)
	q.Task.Extras = q.Task.Over(extras(p.AgentOptions))
	q.Timeout = cmp.Or(q.Timeout, apispec.Duration(p.Timeout))
	q.Provider, q.Access = p.Provider, p.Access
	q.New.Shared, q.New.SharedName = p.Shared || p.SharedName != "", p.SharedName
	return q, nil
}

// ownDirectory is a directory of the machine's owner's, who asks, to be copied.
func (s runRoutes) ownDirectory(ctx context.Context, who cove.Principal, dir string) (string, error) {
	if !who.IsOwner() {
		refusal := cove.Errorf(cove.Forbidden, "a directory of the machine is for its owner").
			WithHint("name a repository instead: new.repository")
		s.deny(ctx, who, "attach", dir, refusal)
		return "", refusal
	}
	return s.CheckProject(dir)
}

// beginRun starts a run of an agent, and writes its events.
func (s runRoutes) beginRun(ctx context.Context, ex *exchange, q run.Request) {
	events := &eventStream{w: ex.w, clock: s.Clock}
	defer events.stop()
	making, cancel := context.WithCancel(ctx)
	if q.Detach {
		making, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer cancel()
	began := s.Clock.Monotonic()
	q.Progress = func(step workspace.Step) {
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		if !events.put("0", api.EventProgress, progressOf(step, s.Clock.Since(began))) && !q.Detach {
			cancel() // the caller has gone
		}
	}
	begun, err := s.Runs.Begin(making, ex.who, q)
	if err != nil {
		s.endRunEvents(ex, events, err)
		return
	}
	if err := s.runEvents(ctx, ex, events, string(begun.ID), 0); err != nil && !q.Detach &&
		!errors.Is(err, os.ErrDeadlineExceeded) && cove.ErrorCode(err) != cove.Shutdown {
		s.Runs.Interrupt(context.WithoutCancel(ctx), ex.who, string(begun.ID), false) // who may have ended meanwhile
	}
}

// endRunEvents ends a stream with an error: a status, if nothing was sent yet.
func (s runRoutes) endRunEvents(ex *exchange, events *eventStream, err error) {
	if !events.begun() {
		writeError(ex, err)
		return
	}
	ex.failure = err
	events.last(api.EventError, body(ex, err))
}

// runEvents writes the events of a run to its end. The error is why it did not come to that.
func (s runRoutes) runEvents(ctx context.Context, ex *exchange, events *eventStream, ref string, after int) error {
	put := func(seq int, name string, v any) error {
		events.mu.Lock()
		defer events.mu.Unlock()
		events.event(strconv.Itoa(seq), name, v)
		events.send()
		return events.err
	}
	begun := func(r store.Run) error {
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		return put(after, api.EventRun, apispec.Run(r))
	}
	ended, err := s.Runs.Follow(ctx, ex.who, ref, after, begun, func(e run.Event) error {
		switch {
		case e.Message != nil:
			return put(e.Seq, api.EventMessage, e.Message)
		case e.Decision != nil:
			return put(e.Seq, api.EventDecision, apispec.Decision(*e.Decision))
		case e.Asked:
			return put(e.Seq, api.EventHolds, holdList(e.Holds))
		}
		return put(e.Seq, api.EventLog, api.OutputEvent{Data: e.Log})
	})
	if err != nil {
		s.endRunEvents(ex, events, err)
		return err
	}
	events.last(api.EventDone, apispec.Run(ended))
	return nil
}

type listRunsInput struct {
	Agent   string `query:"agent" maxLength:"64" doc:"Only of this agent"`
	Status  string `query:"status" enum:"running,succeeded,failed,interrupted,limit,error" doc:"Only with this status"`
	Sandbox string `query:"sandbox" maxLength:"64" doc:"Only in this sandbox, by its id"`
	Before  string `query:"before" maxLength:"256" doc:"next of the list before"`
	Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows"`
}

// listRuns is GET /runs.
func (s runRoutes) listRuns(ctx context.Context, in *listRunsInput) (*answer[api.RunList], error) {
	page, err := s.Runs.Runs(ctx, exchangeOf(ctx).who, store.RunQuery{Agent: in.Agent, Status: store.RunStatus(in.Status),
		Sandbox: in.Sandbox, Cursor: in.Before, Limit: in.Limit})
	return &answer[api.RunList]{apispec.Runs(page)}, err
}

// getRun is GET /runs/{run}.
func (s runRoutes) getRun(ctx context.Context, in *RunPath) (*answer[api.Run], error) {
	shown, err := s.Runs.Run(ctx, exchangeOf(ctx).who, in.Run)
	return &answer[api.Run]{apispec.Run(shown)}, err
}

type followRunInput struct {
	RunPath
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen; what follows it comes"`
}

// followRun is GET /runs/{run}/events.
func (s runRoutes) followRun(ctx context.Context, in *followRunInput) (*huma.StreamResponse, error) {
	after := 0
	if in.LastEventID != "" {
		n, err := strconv.ParseUint(in.LastEventID, 10, 31)
		if err != nil {
			return nil, cove.Errorf(cove.InvalidArgument, "Last-Event-ID %.64q is not the id of an event", in.LastEventID).
				WithHint("send the id of the last event that was seen, such as 12, or leave it out to begin")
		}
		after = int(n)
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		ex := exchangeOf(ctx)
		events := &eventStream{w: ex.w, clock: s.Clock}
		defer events.stop()
		s.runEvents(ctx, ex, events, in.Run, after) // who left has nothing to be told
	}}, nil
}

type interruptRunInput struct {
	RunPath
	Body api.RunInterrupt
}

// interruptRun is POST /runs/{run}/interrupt.
func (s runRoutes) interruptRun(ctx context.Context, in *interruptRunInput) (*struct{}, error) {
	return nil, s.Runs.Interrupt(ctx, exchangeOf(ctx).who, in.Run, in.Body.Kill)
}

// removeRun is DELETE /runs/{run}.
func (s runRoutes) removeRun(ctx context.Context, in *RunPath) (*struct{}, error) {
	return nil, s.Runs.Remove(ctx, exchangeOf(ctx).who, in.Run)
}

// exportRun is GET /runs/{run}/export.
func (s runRoutes) exportRun(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
	return download(ctx, "application/x-tar", func(who cove.Principal, out io.Writer) error {
		return s.Runs.Export(ctx, who, in.Run, out)
	})
}

type recordingInput struct {
	RunPath
	Terminal string `path:"terminal" maxLength:"32" doc:"Its id" example:"t1"`
}

// runRecording is GET /runs/{run}/recordings/{terminal}.
func (s runRoutes) runRecording(ctx context.Context, in *recordingInput) (*huma.StreamResponse, error) {
	return download(ctx, "application/x-asciicast", func(who cove.Principal, out io.Writer) error {
		return s.Runs.Recording(ctx, who, in.Run, in.Terminal, out)
	})
}

// runResponses documents the stream.
func (s runRoutes) runResponses() map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
		schemas.Schema(typeOf[api.Progress](), true, ""), schemas.Schema(typeOf[api.Run](), true, ""),
		schemas.Schema(typeOf[api.Message](), true, ""), schemas.Schema(typeOf[api.OutputEvent](), true, ""),
		schemas.Schema(typeOf[api.Decision](), true, ""), schemas.Schema(typeOf[api.HoldList](), true, ""),
		schemas.Schema(typeOf[api.Error](), true, "")}}
	return eventResponses(nil, "How many messages and logs have come, for Last-Event-ID of GET /runs/{run}/events", data,
		api.EventProgress, api.EventRun, api.EventMessage, api.EventLog, api.EventDecision, api.EventHolds, api.EventDone,
		api.EventError)
}
