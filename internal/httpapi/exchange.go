package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

// exchange is one request and its answer on their way through the server.
type exchange struct {
	r          *http.Request
	w          *response
	id         string
	pattern    string // of the route, "" when there is none
	door       door
	who        cove.Principal // who asks
	known      bool           // the owner, the holder of a key, or any caller where no key is needed
	rated      bool           // the rate was looked at already
	retryAfter int            // seconds, for 429 and 503
	release    []func()
	start      clock.Instant
	failure    error // what was answered with an error, for the log
}

// guard refuses a request by returning an error.
type guard func(*exchange) error

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := &exchange{id: requestID(r.Header), door: doorOf(r.Context()), start: s.Clock.Monotonic(),
		who: cove.Address(addressGroup(r.RemoteAddr))}
	ex.w = &response{ResponseWriter: w, timeout: s.WriteTimeout}
	ex.r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, ex))
	defer s.finish(ex)
	if canonicalPath(r) {
		_, ex.pattern = s.mux.Handler(r)
	}
	setHeaders(ex)
	for _, g := range s.guards {
		if err := g(ex); err != nil {
			s.auditRefusal(ex, err)
			s.writeError(ex, err)
			return
		}
	}
	s.mux.ServeHTTP(ex.w, ex.r)
}

// canonicalPath refuses what the mux would answer with a redirect, which no
// client of an API follows and which shows what exists.
func canonicalPath(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return strings.HasPrefix(p, "/") && !strings.Contains(p, "//") && !strings.Contains(p, "/./") &&
		!strings.Contains(p, "/../") &&
		!strings.HasSuffix(p, "/.") && !strings.HasSuffix(p, "/..")
}

// findRoute answers in the API's own form where the mux would in its.
func (s *Server) findRoute(ex *exchange) error {
	if ex.pattern != "" {
		return nil
	}
	if allowed := s.methodsOf(ex.r); len(allowed) > 0 {
		ex.w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &statusError{http.StatusMethodNotAllowed,
			cove.Errorf(cove.InvalidArgument, "%.20q is not a method of this path", ex.r.Method).
				WithHint("use %s", strings.Join(allowed, " or "))}
	}
	return cove.Errorf(cove.NotFound, "there is no such path").WithHint("GET /openapi.json lists them")
}

func (s *Server) methodsOf(r *http.Request) []string {
	if !canonicalPath(r) {
		return nil
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		probe := *r
		probe.Method = m
		if _, pattern := s.mux.Handler(&probe); pattern != "" {
			allowed = append(allowed, m)
		}
	}
	return allowed
}

// takePlace bounds requests in progress. Health and killing always have one.
func (s *Server) takePlace(ex *exchange) error {
	if ex.pattern == "GET /health" || ex.r.Method == http.MethodDelete {
		return nil
	}
	select {
	case s.places <- struct{}{}:
		ex.release = append(ex.release, func() { <-s.places })
		return nil
	default:
		ex.retryAfter = 1
		return &statusError{http.StatusServiceUnavailable,
			cove.Errorf(cove.Overloaded, "%d requests are in progress", cap(s.places)).WithHint("try again in a second")}
	}
}

func setHeaders(ex *exchange) {
	h := ex.w.Header()
	h.Set("X-Request-Id", ex.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cache-Control", "no-store")
	if ex.r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID takes over a caller's id, so that its logs and ours meet.
func requestID(h http.Header) string {
	if ids := h.Values("X-Request-Id"); len(ids) == 1 && requestIDPattern.MatchString(ids[0]) {
		return ids[0]
	}
	return "rq" + string(cove.NewExecutionID())[2:]
}

// finish is the end of every exchange: panics, places, metrics, the log line.
func (s *Server) finish(ex *exchange) {
	p := recover()
	aborted := p != nil && p == any(http.ErrAbortHandler)
	if p != nil && !aborted {
		s.Log.Error("panic in a request", "request_id", ex.id, "panic", p, "stack", string(debug.Stack()))
		if ex.w.status == 0 {
			s.writeError(ex, errors.New("panic"))
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

func truncate(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// response is a ResponseWriter that remembers what went out and gives up on a client that does not read.
type response struct {
	http.ResponseWriter
	timeout time.Duration
	armed   time.Time // when the deadline was set last
	status  int
	bytes   int64
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.arm()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.arm()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// arm moves the deadline for what is written next. Setting it is cheap, but
// not free, so a stream sets it once a second.
func (w *response) arm() {
	if now := time.Now(); now.Sub(w.armed) > min(time.Second, w.timeout/4) || w.armed.IsZero() {
		w.armed = now
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(w.timeout))
	}
}

func (ex *exchange) setRetryAfter(h http.Header, status int) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(max(1, ex.retryAfter)))
	}
}
