package httpapi

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
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

// event writes one event; e.mu is held.
func (e *eventStream) event(id, name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	b := make([]byte, 0, len(data)+64)
	b = append(b, "id: "...)
	b = append(b, id...)
	b = append(b, "\nevent: "...)
	b = append(b, name...)
	b = append(b, "\ndata: "...)
	b = append(b, data...)
	e.write(append(b, "\n\n"...))
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
