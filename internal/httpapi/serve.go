package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/cove-sandbox/cove"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := &exchange{id: requestID(r.Header), door: doorOf(r.Context()), start: s.Clock.Monotonic(),
		who: cove.Address(addressGroup(r.RemoteAddr))}
	ex.w = &response{ResponseWriter: w, timeout: s.WriteTimeout}
	ex.r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex))
	defer s.finish(ex)
	var at *edge
	if canonicalPath(r) {
		at, ex.pattern = s.edgeOf(r)
	}
	setHeaders(ex)
	for _, g := range s.inOrder() {
		if err := g(ex); err != nil {
			s.auditRefusal(ex, err)
			if statusOf(err) == http.StatusServiceUnavailable {
				ex.dropBody()
			}
			writeError(ex, err)
			return
		}
	}
	at.mux.ServeHTTP(ex.w, ex.r) // findRoute has refused what has no route
}

// auditRefusal records that a guard turned a caller away for who it is.
func (s *Server) auditRefusal(ex *exchange, err error) {
	switch cove.ErrorCode(err) {
	case cove.Unauthenticated, cove.Forbidden:
		what := ex.pattern
		if what == "" {
			what = ex.r.Method
		}
		s.deny(ex.r.Context(), ex.who, "request", what, err)
	}
}

// finish is the end of every exchange: panics, places, metrics, the log line.
func (s *Server) finish(ex *exchange) {
	p := recover()
	aborted := p != nil && p == any(http.ErrAbortHandler)
	if p != nil && !aborted {
		s.Log.Error("panic in a request", "request_id", ex.id, "panic", p, "stack", string(debug.Stack()))
		if ex.w.status == 0 {
			writeError(ex, errors.New("panic"))
		} else {
			aborted = true // half an answer must not look like a whole one
		}
	}
	for _, f := range ex.release {
		f()
	}
	s.record(ex)
	if aborted {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) record(ex *exchange) {
	took := s.Clock.Since(ex.start)
	if ex.w.status == 0 {
		ex.w.status = http.StatusOK // what net/http sends when a handler writes nothing
	}
	s.metrics.request(ex, took)
	level := slog.LevelInfo
	if ex.pattern == "GET /health" || ex.pattern == "GET /metrics" {
		level = slog.LevelDebug // asked every few seconds by machines
	}
	attrs := []any{"request_id", ex.id, "method", ex.r.Method, "path", truncate(ex.r.URL.Path, 200), "status", ex.w.status,
		"bytes", ex.w.bytes, "duration_ms", float64(took.Microseconds()) / 1000, "client", ex.who.String()}
	if ex.failure != nil {
		attrs = append(attrs, "error", ex.failure.Error())
	}
	s.Log.Log(context.Background(), level, "request", attrs...)
}
