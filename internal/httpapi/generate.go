package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/generate"
	"github.com/cove-sandbox/cove/internal/model"
)

// generateRoutes serve single answers of models.
type generateRoutes struct{ *edge }

// add adds the route of single answers.
func (s generateRoutes) add() {
	schemas := s.api.OpenAPI().Components.Schemas
	made := schemas.Schema(typeOf[api.Generated](), true, "")
	responses := eventResponses(map[string]*huma.Param{api.ExecutionIDHeader: {
		Description: "The id of the execution that the answer is recorded as", Schema: &huma.Schema{Type: huma.TypeString}}},
		"How much of stdout and of stderr has come, in bytes: 12-0",
		&huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
			schemas.Schema(typeOf[api.OutputEvent](), true, ""), made, schemas.Schema(typeOf[api.Error](), true, "")}},
		api.EventStdout, api.EventStderr, api.EventDone, api.EventError)
	responses["200"].Description = "The answer; with stream, a stream of server-sent events"
	responses["200"].Content["application/json"] = &huma.MediaType{Schema: made}
	route(s, huma.Operation{OperationID: "generate", Method: http.MethodPost, Path: "/generate", Tags: []string{"agents"},
		Summary: "Ask a model for a single answer",
		Description: "The gateway sets the machine's keys. There is no agent, no tool and no sandbox. An " +
			"answer that is not valid by the schema is requested once more, with the reason. With stream, server-sent events: " +
			"stdout carries an OutputEvent of the answer as it comes (with a schema once it is valid), stderr one of notes, " +
			"done the Generated, error an Error; done or error is the last. It is recorded as an execution of the language " +
			"generate, which DELETE /executions/{id} ends; so does a caller who leaves.",
		Responses: responses,
	}, []cove.Code{cove.NotFound, cove.TooLarge, cove.Unsupported, cove.Overloaded, cove.ModelUnreachable,
		cove.StorageFull, cove.Canceled}, s.generate)
}

type generateInput struct{ Body api.GenerateRequest }

// generate is POST /generate.
func (s generateRoutes) generate(ctx context.Context, in *generateInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	q, err := s.question(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if in.Body.Stream {
		return &huma.StreamResponse{Body: func(huma.Context) { s.streamAnswer(ctx, ex, q) }}, nil
	}
	result, err := s.ask(ctx, ex.who, q, func(id cove.ExecutionID) {
		ex.w.Header().Set(api.ExecutionIDHeader, string(id))
	}, nil)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) {
		ex.w.Header().Set("Content-Type", "application/json")
		strictJSON.Marshal(ex.w, generated(ex, result)) // a client that has gone needs no answer
	}}, nil
}

// question turns a wire request into one for the generate package.
func (s generateRoutes) question(ctx context.Context, b api.GenerateRequest) (q generate.Request, err error) {
	q = generate.Request{Model: b.Model, Provider: b.Provider, Budget: apispec.Budget(b.Budget),
		Question: model.Question{Prompt: b.Prompt, Instructions: b.Instructions, Schema: b.Schema, MaxOutput: b.MaxTokens}}
	if err := checkTimeout(b.Timeout); err != nil {
		return q, err
	}
	q.Timeout = apispec.Duration(b.Timeout)
	given, err := files(b.Files)
	if err != nil {
		return q, err
	}
	for _, f := range given {
		q.Files = append(q.Files, model.File{Name: f.Path, Text: string(f.Data)})
	}
	return withProfile(s.edge, b.Profile, q, answersOf)
}

// answersOf fills in a question from a profile's settings of models. The request's own settings win.
func answersOf(p api.Profile, q generate.Request) (generate.Request, error) {
	if p.Network != nil {
		q.Budget = q.Budget.Over(apispec.Budget(p.Network.Budget))
		if len(p.Network.Providers) > 0 {
			p.Provider = cmp.Or(p.Provider, p.Network.Providers[0])
		}
	}
	if q.Provider == "" || q.Provider == p.Provider {
		q.Model = cmp.Or(q.Model, p.Model)
	}
	q.Provider = cmp.Or(q.Provider, p.Provider)
	q.Instructions = cmp.Or(q.Instructions, p.Instructions)
	q.Timeout = cmp.Or(q.Timeout, min(apispec.Duration(p.Timeout), generate.MaxTimeout))
	return q, nil
}

// ask asks and counts. What became of an answer that a limit, a caller or the model itself has ended is no error.
func (s generateRoutes) ask(ctx context.Context, who cove.Principal, q generate.Request,
	started func(cove.ExecutionID), out process.Output) (generate.Result, error) {
	began := s.Clock.Monotonic()
	result, err := s.Generator.Generate(ctx, who, q, started, out)
	s.metrics.execution(generate.Language, result.Execution, err, s.Clock.Since(began))
	switch cove.ErrorCode(result.Err) {
	case "", cove.AgentFailed, cove.SchemaMismatch, cove.LimitReached, cove.Canceled:
	default:
		err = cmp.Or(err, result.Err)
	}
	return result, err
}

// streamAnswer writes an answer as events.
func (s generateRoutes) streamAnswer(ctx context.Context, ex *exchange, q generate.Request) {
	events := newEventWriter(ex, s.Clock)
	defer events.stop()
	result, err := s.ask(ctx, ex.who, q, func(id cove.ExecutionID) { events.begin(id, s.Heartbeat) }, events)
	if err != nil {
		breakOff(ex, events, err)
		return
	}
	events.finish(api.EventDone, generated(ex, result))
}

// generated returns an answer in the wire format.
func generated(ex *exchange, r generate.Result) api.Generated {
	g := api.Generated{ID: string(r.Execution.ID), Status: api.RunSucceeded, Text: r.Text, Data: r.Data, Model: r.Model,
		Provider: r.Provider, Usage: r.Usage, Timeout: r.Execution.Limits.Timeout.Seconds()}
	switch {
	case r.Err == nil:
		return g
	case r.Execution.Limit != "":
		g.Status, g.LimitHit = api.RunLimit, string(r.Execution.Limit)
	case r.Execution.Killed:
		g.Status = api.RunInterrupted
	default:
		g.Status = api.RunFailed
	}
	g.Error = new(body(ex, r.Err))
	return g
}
