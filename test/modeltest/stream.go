package modeltest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// stream sends an answer event by event.
func (s *Server) stream(w *writer, r *http.Request, p protocol, a *asked, said *answer, pace time.Duration, f Fault) {
	if f.Status != 0 && f.After == 0 {
		refuse(w, p, f)
		return
	}
	if f.Cut && f.After == 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", a.streamType())
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	send := func(text string) bool {
		if _, err := w.Write([]byte(text)); err != nil {
			return false
		}
		return http.NewResponseController(w).Flush() == nil && wait(r, pace)
	}
	events := p.events(a, said)
	for i, e := range events {
		if f != (Fault{}) && i == f.After {
			switch {
			case f.Status != 0:
				send(p.broken(f.Status, f.message()).line())
				return
			case f.Cut:
				panic(http.ErrAbortHandler)
			case f.Garbage != "":
				if !send("data: " + f.Garbage + "\n\n") {
					return
				}
				continue
			case f.Stall > 0 && (http.NewResponseController(w).Flush() != nil || !wait(r, f.Stall)):
				return
			}
		}
		if !send(a.piece(e, i, len(events))) {
			return
		}
		for f.Endless && e.text && i >= f.After {
			if !send(e.line()) || !wait(r, time.Millisecond) {
				return
			}
		}
	}
}

func (a *asked) streamType() string {
	switch {
	case a.frames:
		return "application/vnd.amazon.eventstream"
	case a.list:
		return "application/json"
	}
	return "text/event-stream"
}

// piece is an event in the form of the stream, i of n.
func (a *asked) piece(e event, i, n int) string {
	switch {
	case a.frames:
		return string(e.frame())
	case !a.list:
		return e.line()
	}
	text := "[" + string(encode(e.data))
	if i > 0 {
		text = ",\r\n" + text[1:]
	}
	if i == n-1 {
		text += "]"
	}
	return text
}

// line is an event as SSE.
func (e event) line() string {
	data, ok := e.data.(string)
	if !ok {
		data = string(encode(e.data))
	}
	if e.name == "" {
		return "data: " + data + "\n\n"
	}
	return "event: " + e.name + "\ndata: " + data + "\n\n"
}

// document sends an answer as a whole.
func (s *Server) document(w *writer, r *http.Request, p protocol, a *asked, said *answer, f Fault) {
	body := encode(p.whole(a, said))
	switch {
	case f.Status != 0:
		refuse(w, p, f)
		return
	case f.Cut:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case f.Garbage != "":
		body = []byte(f.Garbage)
	case f.Stall > 0 && !wait(r, f.Stall):
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for f.Endless { // space is what JSON may begin with
		if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil ||
			!wait(r, time.Millisecond) {
			return
		}
	}
	w.Write(body)
}

func refuse(w http.ResponseWriter, p protocol, f Fault) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	reply(w, f.Status, p.failure(f.Status, f.message()))
}

func (f Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return fmt.Sprintf("the script answers %d", f.Status)
}

// wait is false when whoever asked has gone.
func wait(r *http.Request, d time.Duration) bool {
	if d == 0 {
		return r.Context().Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// pieces are what a text is sent in: about as much as models send at once.
func pieces(text string) []string {
	const size = 16 // bytes, and the rest of a letter
	var all []string
	begin := 0
	for i := range text {
		if i-begin >= size {
			all = append(all, text[begin:i])
			begin = i
		}
	}
	if begin < len(text) {
		all = append(all, text[begin:])
	}
	return all
}
