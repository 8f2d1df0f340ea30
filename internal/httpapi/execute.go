package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/spool"
)

type executeInput struct {
	CompatQuery
	Body api.ExecuteRequest
}

// execute is POST /execute.
func (s executionRoutes) execute(ctx context.Context, in *executeInput) (*answer[wholeExecution], error) {
	ex := exchangeOf(ctx)
	if q, is, err := s.asRun(ctx, ex, in.Body); is {
		if err != nil {
			return nil, err
		}
		result, err := s.runAgent(ctx, ex.who, q, func(id cove.ExecutionID) {
			ex.w.Header().Set(api.ExecutionIDHeader, string(id))
		}, nil)
		if err != nil {
			return nil, err
		}
		return resultAnswer(ex, result), nil
	}
	if in.Body.StdinStream {
		return nil, cove.Errorf(cove.InvalidArgument, "stdin_stream works with POST /execute/stream only").
			WithHint("put the input into stdin")
	}
	req, err := s.request(ctx, ex.who, in.Body)
	if err != nil {
		return nil, err
	}
	result, err := s.run(ctx, ex.who, req, func(id cove.ExecutionID) {
		ex.w.Header().Set(api.ExecutionIDHeader, string(id))
	}, nil)
	if err != nil {
		return nil, err
	}
	return resultAnswer(ex, result), nil
}

// wholeAnswer answers with an execution and its output, which it releases after the answer.
func wholeAnswer(ex *exchange, e api.Execution, output *spool.Output) *answer[wholeExecution] {
	ex.release = append(ex.release, output.Release)
	return &answer[wholeExecution]{wholeExecution{e, output}}
}

// resultAnswer answers with a result and its output.
func resultAnswer(ex *exchange, r execution.Result) *answer[wholeExecution] {
	return wholeAnswer(ex, executionOf(r), r.Output)
}

// stream is POST /execute/stream.
func (s executionRoutes) stream(ctx context.Context, in *executeInput) (*huma.StreamResponse, error) {
	ex := exchangeOf(ctx)
	if q, is, err := s.asRun(ctx, ex, in.Body); is {
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(huma.Context) { s.streamAgent(ctx, ex, q) }}, nil
	}
	req, err := s.request(ctx, ex.who, in.Body)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.follow(ctx, ex, req, in.Body.StdinStream) }}, nil
}

// follow runs req and writes its events. Until the execution has begun, a
// failure is answered with a status; afterwards with an event.
func (s executionRoutes) follow(ctx context.Context, ex *exchange, req execution.Request, input bool) {
	events := newEventWriter(ex, s.Clock)
	defer events.stop()
	var in *inputPipe
	if input {
		in = newInputPipe(ex.who)
		req.Stdin = in
		defer in.end()
	}
	result, err := s.run(ctx, ex.who, req, func(id cove.ExecutionID) {
		if in != nil {
			s.inputs.add(id, in) // before the client learns the id
		}
		events.begin(id, s.Heartbeat)
	}, events)
	if in != nil {
		s.inputs.remove(in)
	}
	s.end(ex, events, result, err)
}

type followInput struct {
	ExecutionPath
	CompatQuery
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen; what follows it comes"`
}

// attach is GET /executions/{id}/stream.
func (s executionRoutes) attach(ctx context.Context, in *followInput) (*huma.StreamResponse, error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	from, err := parseEventID(in.LastEventID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.resume(ctx, exchangeOf(ctx), id, from) }}, nil
}

// resume writes the events of an execution from a position on. The events of a running execution are written as they
// come, those of an ended one from its record.
func (s executionRoutes) resume(ctx context.Context, ex *exchange, id cove.ExecutionID, from execution.Position) {
	events := newEventWriter(ex, s.Clock)
	events.at = from
	defer events.stop()
	begin := func() { events.begin(id, s.Heartbeat) }
	err := s.Executor.Follow(ctx, ex.who, id, from, begin, events)
	if err != nil && cove.ErrorCode(err) != cove.Conflict {
		breakOff(ex, events, err)
		return
	}
	record, output, gerr := s.Executor.Recorded(ctx, ex.who, id)
	defer output.Release()
	switch {
	case gerr != nil:
		breakOff(ex, events, gerr)
		return
	case record.Status == cove.StatusRunning && err != nil: // in another process
		breakOff(ex, events, err)
		return
	case err != nil:
		begin()
		if err := errors.Join(handOut(output.Stdout(), from.Stdout, events.Stdout),
			handOut(output.Stderr(), from.Stderr, events.Stderr)); err != nil {
			breakOff(ex, events, err)
			return
		}
	}
	events.finish(api.EventDone, apispec.Execution(record))
}

// handOut writes what lies beyond the first n bytes of a stream.
func handOut(s *spool.Stream, n int64, write func([]byte) error) error {
	for p, err := range s.Chunks(n) {
		if err != nil {
			return err
		}
		if err := write(p); err != nil {
			return err
		}
	}
	return nil
}

// sendInput is POST /executions/{id}/stdin.
func (s executionRoutes) sendInput(ctx context.Context, in *ExecutionPath) (*huma.StreamResponse, error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	ex := exchangeOf(ctx)
	p := s.inputs.find(id)
	if p == nil || p.who != ex.who {
		return nil, cove.Errorf(cove.NotFound, "no execution %.64q waits for input", in.ID).
			WithHint("start it with POST /execute/stream and stdin_stream")
	}
	if !p.take() {
		return nil, cove.Errorf(cove.Conflict, "the input of %s is being sent already", id).WithHint("send it in one request")
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.pump(ex, p) }}, nil
}

// pump passes the body on at the pace at which the program reads.
func (s executionRoutes) pump(ex *exchange, p *inputPipe) {
	stop := context.AfterFunc(ex.r.Context(), func() { p.writer.CloseWithError(io.ErrUnexpectedEOF) })
	defer stop()
	_, err := io.Copy(p.writer, ex.r.Body)
	switch {
	case errors.Is(err, errEnded):
		// The rest of the body is not waited for.
		ex.w.Header().Set("Connection", "close")
		http.NewResponseController(ex.w).SetReadDeadline(time.Now())
		writeError(ex, cove.Errorf(cove.Conflict, "the execution ended before it had read its input"))
	case err != nil:
		p.writer.CloseWithError(io.ErrUnexpectedEOF)
		writeError(ex, cove.Errorf(cove.Canceled, "the input broke off: %w", err))
	default:
		p.writer.Close()
		ex.w.WriteHeader(http.StatusNoContent)
	}
}

// streamResponses documents the stream, which no Go type describes.
func (s executionRoutes) streamResponses() map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
		schemas.Schema(typeOf[api.OutputEvent](), true, ""), schemas.Schema(typeOf[api.HoldList](), true, ""),
		schemas.Schema(typeOf[api.Execution](), true, ""), schemas.Schema(typeOf[api.Error](), true, "")}}
	headers := map[string]*huma.Param{api.ExecutionIDHeader: {Description: "The execution's id, before its first event",
		Schema: &huma.Schema{Type: huma.TypeString}}}
	return eventResponses(headers,
		"How much of stdout and of stderr has come, in bytes: 12-0. For Last-Event-ID of GET /executions/{id}/stream", data,
		api.EventStdout, api.EventStderr, api.EventHolds, api.EventDone, api.EventError)
}
