package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/spool"
)

// coalesce is how long an event may wait in a buffer for more of them.
const coalesce = 5 * time.Millisecond

// eventStream writes server-sent events. Data is JSON on one line, so nothing
// a program writes can end an event or begin another.
type eventStream struct {
	w     *response
	clock clock.Clock

	mu      sync.Mutex
	started bool
	ended   bool
	err     error // of the first write that failed; nothing is written after it
	flushed clock.Instant
	flush   *clock.Timer // pending flush, or nil
	beat    *clock.Timer
}

// open sends the headers.
func (e *eventStream) open(heartbeat time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must pass events on as they come
	e.w.WriteHeader(http.StatusOK)
	e.started = true
	e.send()
	e.beat = e.clock.AfterFunc(heartbeat, func() { e.heartbeat(heartbeat) })
}

func (e *eventStream) begun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started
}

// heartbeat shows the client and everything between that the stream lives, and shows us when it does not.
func (e *eventStream) heartbeat(every time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	e.write([]byte(":\n\n"))
	e.send()
	e.beat.Reset(every)
}

// stop ends the timers.
func (e *eventStream) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	for _, t := range []*clock.Timer{e.beat, e.flush} {
		if t != nil {
			t.Stop()
		}
	}
}

// put writes one event, and reports whether the client still listens.
func (e *eventStream) put(id, name string, v any) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.event(id, name, v)
	e.soon()
	return e.err == nil
}

// last writes the last event of a stream.
func (e *eventStream) last(name string, v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.event("0", name, v)
	e.send()
	e.ended = true
}

// event writes one event; e.mu is held.
func (e *eventStream) event(id, name string, v any) {
	e.encoded(id, name, func(b *bytes.Buffer) error { return json.NewEncoder(b).Encode(v) })
}

// eventBuffers holds buffers of events: output is most of what the server writes.
var eventBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// encoded writes one event whose data is a line that encode appends; e.mu is held.
func (e *eventStream) encoded(id, name string, encode func(*bytes.Buffer) error) {
	b := eventBuffers.Get().(*bytes.Buffer)
	b.Reset()
	b.WriteString("id: " + id + "\nevent: " + name + "\ndata: ")
	if err := encode(b); err != nil {
		e.err = err
		return
	}
	b.WriteByte('\n')
	e.write(b.Bytes())
	if b.Cap() <= 2*spool.MaxChunk {
		eventBuffers.Put(b)
	}
}

func (e *eventStream) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

// soon flushes now, or shortly when something was flushed just before.
func (e *eventStream) soon() {
	if e.flush != nil {
		return
	}
	since := e.clock.Since(e.flushed)
	if since >= coalesce {
		e.send()
		return
	}
	e.flush = e.clock.AfterFunc(coalesce-since, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.flush = nil
		if !e.ended {
			e.send()
		}
	})
}

func (e *eventStream) send() {
	if e.err == nil {
		e.err = http.NewResponseController(e.w).Flush()
	}
	e.flushed = e.clock.Monotonic()
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

// lineEnds makes line feeds of the line ends of server-sent events.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// textEvent writes an event whose data is a text: a line of data for each of its lines, which clients join with line
// feeds. No text ends the event, since every line end begins another line of data. e.mu is held.
func (e *eventStream) textEvent(id, name string, text []byte) {
	var b strings.Builder
	b.WriteString("id: " + id + "\nevent: " + name + "\n")
	for line := range strings.SplitSeq(lineEnds.Replace(strings.ToValidUTF8(string(text), "\uFFFD")), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
	e.write([]byte(b.String()))
}
