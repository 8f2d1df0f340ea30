package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

// admission describes how executions wait for a place, and when they are refused one.
const admission = "It waits for a place in turn with those of other callers. Where it would wait for longer than its " +
	"timeout or sandbox.max_wait, or too many wait already, it is answered with 429, overloaded, before anything has " +
	"run, and Retry-After says when those have begun that wait now, as it is estimated."

// add adds the routes of executions.
func (s executionRoutes) add() {
	route(s, huma.Operation{OperationID: "execute", Method: http.MethodPost, Path: "/execute", Tags: []string{"run"},
		Summary: "Run a snippet and wait for its end",
		Description: "The program's own failure is not an error: its exit code is in the answer. When the caller goes " +
			"away, the execution is killed. Its sandbox, an agent's too, ends with it. " + admission,
	}, executeErrors, s.execute)

	s.addStream()

	route(s, huma.Operation{OperationID: "send-stdin", Method: http.MethodPost, Path: "/executions/{id}/stdin",
		Tags: []string{"run"}, DefaultStatus: http.StatusNoContent,
		Summary: "Send standard input to a running execution",
		Description: "For executions that were started with stdin_stream, once, by the same caller. The body is passed on " +
			"as it comes; its end is the end of the input.",
		RequestBody: &huma.RequestBody{Required: true,
			Content: map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString,
				Format: "binary"}}}},
	}, []cove.Code{cove.NotFound, cove.Conflict, cove.Canceled}, s.sendInput)

	route(s, huma.Operation{OperationID: "list-executions", Method: http.MethodGet, Path: "/executions",
		Tags:    []string{"history"},
		Summary: "List executions, newest first", Description: "The caller's own; all of them for the machine's owner.",
	}, storeErrors, s.list)

	route(s, huma.Operation{OperationID: "get-execution", Method: http.MethodGet, Path: "/executions/{id}",
		Tags:        []string{"history"},
		Summary:     "Get an execution with its output",
		Description: "One of the caller's own, or any for the machine's owner; of one that runs, what there is so far.",
	}, append([]cove.Code{cove.NotFound}, storeErrors...), s.get)

	route(s, huma.Operation{OperationID: "follow-execution", Method: http.MethodGet, Path: "/executions/{id}/stream",
		Tags:    []string{"run"},
		Summary: "Follow the output of an execution",
		Description: "The events of POST /execute/stream from the beginning, or after Last-Event-ID: first what is there, " +
			"standard output before error output, then what comes. " +
			"Following neither slows an execution nor ends it. One that has ended is answered from its record, in which text " +
			"that is not UTF-8 is replaced.",
		Responses: s.streamResponses(),
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.attach)

	route(s, huma.Operation{OperationID: "kill-execution", Method: http.MethodDelete, Path: "/executions/{id}",
		Tags:    []string{"run"},
		Summary: "Kill a running execution",
		Description: "The record stays, with the status killed. The record of an execution that has ended is the answer, " +
			"unchanged.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.kill)

	route(s, huma.Operation{OperationID: "change-network", Method: http.MethodPost, Path: "/executions/{id}/network",
		Tags:        []string{"run"},
		Summary:     "Add to what a running execution may reach",
		Description: "At once; connections that are no longer allowed are cut.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.changeNetwork)

	route(s, huma.Operation{OperationID: "get-authority", Method: http.MethodGet, Path: "/executions/{id}/ca",
		Tags:        []string{"run"},
		Summary:     "Get the certificate of the authority that a running execution trusts",
		Description: "Made for it alone; the key stays with the server.",
	}, append([]cove.Code{cove.NotFound, cove.Conflict}, storeErrors...), s.authority)
	s.describeCompat()
}

// addStream adds the route by which the command line runs something.
func (s executionRoutes) addStream() {
	route(s, huma.Operation{OperationID: "execute-stream", Method: http.MethodPost, Path: "/execute/stream",
		Tags:    []string{"run"},
		Summary: "Run a snippet and follow its output",
		Description: "Server-sent events: stdout and stderr carry an OutputEvent, holds a HoldList whenever what waits for " +
			"an answer has changed, done an Execution without its output, error an Error; done or error is the last. " +
			"Lines that begin with a colon are heartbeats. What fails before the execution has begun is answered with a " +
			"status, not with an event. " + admission,
		Responses: s.streamResponses(),
	}, executeErrors, s.stream)
}

type listInput struct {
	CompatQuery
	Label    []string  `query:"label,explode" maxItems:"64" doc:"Only with this label, KEY=VALUE; of several, with all"`
	Language string    `query:"language" maxLength:"64" doc:"Only of this runtime"`
	Status   string    `query:"status" enum:"running,completed,timeout,limited,killed,shutdown,refused,failed" doc:"Only with this status"`
	Since    time.Time `query:"since" doc:"Created at or after this time"`
	Until    time.Time `query:"until" doc:"Created before this time"`
	Cursor   string    `query:"cursor" maxLength:"256" doc:"next_cursor of the page before"`
	Limit    int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows in a page"`
}

// list is GET /executions.
func (s executionRoutes) list(ctx context.Context, in *listInput) (*answer[api.ExecutionList], error) {
	labels, err := cove.ParseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	page, err := s.Store.For(exchangeOf(ctx).who).List(ctx, store.Query{Labels: labels, Language: in.Language,
		Status: cove.Status(in.Status), Since: in.Since, Until: in.Until, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := api.ExecutionList{Executions: make([]api.Execution, 0, len(page.Executions)), NextCursor: page.Next}
	for _, e := range page.Executions {
		e = s.Executor.Known(e)
		e.Output, e.Stderr = "", "" // as in the store's list
		out.Executions = append(out.Executions, apispec.Execution(e))
	}
	return &answer[api.ExecutionList]{out}, nil
}

type oneInput struct {
	ExecutionPath
	CompatQuery
}

// get is GET /executions/{id}.
func (s executionRoutes) get(ctx context.Context, in *oneInput) (*answer[wholeExecution], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	ex := exchangeOf(ctx)
	e, output, err := s.Executor.Recorded(ctx, ex.who, id)
	if err != nil {
		return nil, err
	}
	if e.Status == cove.StatusRunning {
		e.Models = s.Executor.Models(ex.who, id)
	}
	return wholeAnswer(ex, apispec.Execution(e), output), nil
}

// kill is DELETE /executions/{id}.
func (s executionRoutes) kill(ctx context.Context, in *oneInput) (*answer[wholeExecution], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	ex := exchangeOf(ctx)
	killed := s.Executor.Kill(ctx, ex.who, id)
	if killed != nil && cove.ErrorCode(killed) != cove.Conflict {
		return nil, killed
	}
	e, output, err := s.settled(ctx, ex.who, id, killed == nil)
	if killed != nil && (err != nil || e.Status == cove.StatusRunning) {
		output.Release()
		return nil, killed // it runs in another process
	}
	if err != nil {
		return nil, err
	}
	return wholeAnswer(ex, apispec.Execution(e), output), nil
}

// settled is the record of an execution. The end of one that has been killed is
// recorded when its last output is in, which is waited for a little.
func (s executionRoutes) settled(ctx context.Context, who cove.Principal, id cove.ExecutionID,
	killed bool) (store.Execution, *spool.Output, error) {
	const step, patience = 10 * time.Millisecond, 3 * time.Second
	begun := s.Clock.Monotonic()
	for {
		e, output, err := s.Executor.Recorded(ctx, who, id)
		if err != nil || e.Status != cove.StatusRunning || !killed || s.Clock.Since(begun) > patience {
			return e, output, err
		}
		output.Release()
		select {
		case <-s.Clock.After(step):
		case <-ctx.Done():
			return e, nil, cove.Errorf(cove.Canceled, "the caller went away: %w", ctx.Err())
		}
	}
}

type networkInput struct {
	ExecutionPath
	Body api.NetworkChange
}

// changeNetwork is POST /executions/{id}/network.
func (s executionRoutes) changeNetwork(ctx context.Context, in *networkInput) (*answer[api.NetworkChanged], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	docs, err := policy.Changes(apispec.Change(in.Body).Network())
	if err != nil {
		return nil, err
	}
	who := exchangeOf(ctx).who
	if err := s.mayOpen(ctx, who, docs); err != nil {
		return nil, err
	}
	cut, err := s.Executor.ExtendNetwork(ctx, who, id, docs)
	if err != nil {
		return nil, err
	}
	return &answer[api.NetworkChanged]{api.NetworkChanged{Cut: cut}}, nil
}

// authority is GET /executions/{id}/ca.
func (s executionRoutes) authority(ctx context.Context, in *ExecutionPath) (*answer[api.Authority], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	certificate, err := s.Executor.Certificate(ctx, exchangeOf(ctx).who, id)
	if err != nil {
		return nil, err
	}
	return &answer[api.Authority]{api.Authority{Certificate: string(certificate)}}, nil
}

// describeCompat adds the older form to the description of the routes that have it.
func (s executionRoutes) describeCompat() {
	doc := s.api.OpenAPI()
	one := &huma.MediaType{Schema: doc.Components.Schemas.Schema(typeOf[api.CompatExecution](), true, "")}
	all := &huma.MediaType{Schema: doc.Components.Schemas.Schema(typeOf[api.CompatExecutionList](), true, "")}
	ok := func(op *huma.Operation) map[string]*huma.MediaType { return op.Responses["200"].Content }
	ok(doc.Paths["/execute"].Post)[compatType] = one
	ok(doc.Paths["/executions/{id}"].Get)[compatType] = one
	ok(doc.Paths["/executions/{id}"].Delete)[compatType] = one
	ok(doc.Paths["/executions"].Get)[compatType] = all
}
