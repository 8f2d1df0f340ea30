package httpapi

import (
	"context"
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// stream is POST /execute/stream.
func (s *Server) stream(ctx context.Context, in *executeInput) (*huma.StreamResponse, error) {
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
func (s *Server) follow(ctx context.Context, ex *exchange, req execution.Request, input bool) {
	events := newEventWriter(ex.w, s.Clock)
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
	switch {
	case err == nil && events.begun():
		e := apispec.Execution(result.Record())
		e.Output, e.Stderr = "", "" // handed out already
		events.finish(api.EventDone, e)
	case err == nil:
		s.writeError(ex, cove.Errorf(cove.Internal, "the execution ended before it began"))
	default:
		s.breakOff(ex, events, err)
	}
}

// eventWriter writes the events of an execution.
type eventWriter struct {
	eventStream
	at   execution.Position // of what was written, the id of the last event
	rest [2][]byte          // the beginning of a character at the end of stdout, stderr
}

func newEventWriter(w *response, c clock.Clock) *eventWriter {
	return &eventWriter{eventStream: eventStream{w: w, clock: c}}
}

var (
	_ process.Output  = (*eventWriter)(nil)
	_ execution.Asked = (*eventWriter)(nil)
)

// begin sends the headers.
func (e *eventWriter) begin(id cove.ExecutionID, heartbeat time.Duration) {
	e.w.Header().Set(api.ExecutionIDHeader, string(id))
	e.open(heartbeat)
}

// Stdout implements process.Output.
func (e *eventWriter) Stdout(p []byte) error { return e.output(api.EventStdout, 0, p) }

// Stderr implements process.Output.
func (e *eventWriter) Stderr(p []byte) error { return e.output(api.EventStderr, 1, p) }

// Holds implements execution.Asked.
func (e *eventWriter) Holds(all []approval.Hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.event(eventID(e.at), api.EventHolds, holdList(all))
		e.send()
	}
}

func (e *eventWriter) output(name string, stream int, p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rest[stream]) > 0 {
		p = append(e.rest[stream], p...)
	}
	whole := wholeCharacters(p)
	e.rest[stream] = append([]byte(nil), p[whole:]...)
	if whole > 0 {
		e.outputEvent(name, p[:whole])
		e.soon()
	}
	return e.err
}

// wholeCharacters is the length of p without a character that is cut off at its end: chunks end anywhere.
func wholeCharacters(p []byte) int {
	for i := 1; i <= min(len(p), utf8.UTFMax-1); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}

func outputEvent(p []byte) api.OutputEvent {
	if utf8.Valid(p) {
		return api.OutputEvent{Data: string(p)}
	}
	return api.OutputEvent{Data: base64.StdEncoding.EncodeToString(p), Encoding: "base64"}
}

// finish writes the last event, after what is left of the output.
func (e *eventWriter) finish(name string, v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for stream, name := range []string{api.EventStdout, api.EventStderr} {
		if len(e.rest[stream]) > 0 {
			e.outputEvent(name, e.rest[stream])
		}
	}
	e.event(eventID(e.at), name, v)
	e.send()
	e.ended = true
}

// outputEvent writes an event of output, whose id is where the output then is.
func (e *eventWriter) outputEvent(name string, p []byte) {
	if name == api.EventStdout {
		e.at.Stdout += int64(len(p))
	} else {
		e.at.Stderr += int64(len(p))
	}
	e.event(eventID(e.at), name, outputEvent(p))
}

// streamResponses documents the stream, which no Go type describes.
func (s *Server) streamResponses() map[string]*huma.Response {
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

// eventResponses documents a stream of events.
func eventResponses(headers map[string]*huma.Param, id string, data *huma.Schema,
	events ...any) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: "A stream of server-sent events",
		Headers:     headers,
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeArray,
			Items: &huma.Schema{
				Type: huma.TypeObject, Required: []string{"id", "event", "data"},
				Properties: map[string]*huma.Schema{
					"id":    {Type: huma.TypeString, Description: id},
					"event": {Type: huma.TypeString, Enum: events},
					"data":  data,
				}}}}},
	}}
}
