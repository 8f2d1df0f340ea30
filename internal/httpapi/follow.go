package httpapi

import (
	"context"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/execution"
)

type followInput struct {
	ID          string `path:"id" doc:"The execution's id" example:"ex_0123456789abcdefghjkmnpqrs"`
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen; what follows it comes"`
}

// attach is GET /executions/{id}/stream.
func (s *Server) attach(ctx context.Context, in *followInput) (*huma.StreamResponse, error) {
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
func (s *Server) resume(ctx context.Context, ex *exchange, id cove.ExecutionID, from execution.Position) {
	events := newEventWriter(ex.w, s.Clock)
	events.at = from
	defer events.stop()
	begin := func() { events.begin(id, s.Heartbeat) }
	err := s.Executor.Follow(ctx, ex.who, id, from, begin, events)
	if err != nil && cove.ErrorCode(err) != cove.Conflict {
		s.breakOff(ex, events, err)
		return
	}
	record, gerr := s.Store.For(ex.who).Get(ctx, id)
	switch {
	case gerr != nil:
		s.breakOff(ex, events, gerr)
		return
	case record.Status == cove.StatusRunning && err != nil: // in another process
		s.breakOff(ex, events, err)
		return
	case err != nil:
		begin()
		events.Stdout([]byte(after(record.Output, from.Stdout)))
		events.Stderr([]byte(after(record.Stderr, from.Stderr)))
	}
	e := apispec.Execution(record)
	e.Output, e.Stderr = "", "" // handed out already
	events.finish(api.EventDone, e)
}

// after is text beyond its first n bytes.
func after(text string, n int64) string { return text[min(n, int64(len(text))):] }

// breakOff ends a stream with an error: a status, if nothing was sent yet.
func (s *Server) breakOff(ex *exchange, events *eventWriter, err error) {
	if !events.begun() {
		s.writeError(ex, err)
		return
	}
	ex.failure = err
	events.finish(api.EventError, body(ex, err))
}

// eventID is the id of an event: where the output is after it.
func eventID(at execution.Position) string {
	return strconv.FormatInt(at.Stdout, 10) + "-" + strconv.FormatInt(at.Stderr, 10)
}

// parseEventID reads what eventID wrote; nothing is the beginning.
func parseEventID(id string) (at execution.Position, err error) {
	if id == "" {
		return at, nil
	}
	stdout, stderr, _ := strings.Cut(id, "-")
	a, errA := strconv.ParseUint(stdout, 10, 63)
	b, errB := strconv.ParseUint(stderr, 10, 63)
	at = execution.Position{Stdout: int64(a), Stderr: int64(b)}
	if errA != nil || errB != nil || eventID(at) != id {
		return execution.Position{}, cove.Errorf(cove.InvalidArgument, "Last-Event-ID %.64q is not the id of an event", id).
			WithHint("send the id of the last event that was seen, such as 12-0, or leave it out to begin")
	}
	return at, nil
}
