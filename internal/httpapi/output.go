package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/spool"
)

// eventWriter writes the events of an execution.
type eventWriter struct {
	eventStream
	at   execution.Position // of what was written, the id of the last event
	rest [2][]byte          // the beginning of a character at the end of stdout, stderr
	// compat has the output written as plain text, and the result in the older form.
	compat bool
}

func newEventWriter(ex *exchange, c clock.Clock) *eventWriter {
	return &eventWriter{eventStream: eventStream{w: ex.w, clock: c}, compat: ex.compat()}
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

func holdList(all []approval.Hold) api.HoldList {
	list := api.HoldList{Holds: make([]api.Hold, 0, len(all))}
	for _, h := range all {
		list.Holds = append(list.Holds, api.Hold{
			ID: string(h.ID), Execution: string(h.Execution), Client: h.Client, Host: h.Subject.Host, Port: h.Subject.Port,
			Method: h.Method, Path: h.Path, Address: h.Subject.Address,
			About: h.Subject.String(), Count: h.Count, Rule: h.Rule, Reason: h.Reason, Since: h.Since.UTC(),
			Until: h.Until.UTC(),
		})
	}
	return list
}

func (e *eventWriter) output(name string, stream int, p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rest[stream]) > 0 {
		p = append(e.rest[stream], p...)
	}
	whole := spool.Whole(p)
	e.rest[stream] = append([]byte(nil), p[whole:]...)
	if whole > 0 {
		e.outputEvent(name, p[:whole])
		e.soon()
	}
	return e.err
}

// encodeOutput appends an api.OutputEvent, and the end of its line.
func encodeOutput(b *bytes.Buffer, p []byte) error {
	if utf8.Valid(p) {
		return json.NewEncoder(b).Encode(api.OutputEvent{Data: string(p)})
	}
	b.WriteString(`{"data":"`)
	b.Grow(base64.StdEncoding.EncodedLen(len(p)))
	b.Write(base64.StdEncoding.AppendEncode(b.AvailableBuffer(), p))
	b.WriteString(`","encoding":"base64"}` + "\n")
	return nil
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
	if done, is := v.(api.Execution); is && e.compat {
		v = compatOf(done)
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
	if e.compat {
		e.textEvent(eventID(e.at), name, p)
		return
	}
	e.encoded(eventID(e.at), name, func(b *bytes.Buffer) error { return encodeOutput(b, p) })
}

// breakOff ends a stream with an error: a status, if nothing was sent yet.
func breakOff(ex *exchange, events *eventWriter, err error) {
	if !events.begun() {
		writeError(ex, err)
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

// executionOf is the wire form of a result, without the output.
func executionOf(r execution.Result) api.Execution {
	e := apispec.Execution(r.Record())
	e.Unrecorded = r.Unrecorded
	return e
}
