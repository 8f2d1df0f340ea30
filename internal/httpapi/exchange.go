package httpapi

import (
	"context"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// exchange is one request and its answer on their way through the server.
type exchange struct {
	r       *http.Request
	w       *response
	id      string
	pattern string // of the route, "" when there is none
	door    door
	who     cove.Principal // who asks
	known   bool           // the owner, the holder of a key, or any caller where no key is needed
	scopes  []access.Scope // that it has, unless it is the owner
	unknown error          // why it is not known, if that is more than a missing key
	release []func()
	start   clock.Instant
	failure error // what was answered with an error, for the log
}

// caller returns who asks, for decisions about access.
func (ex *exchange) caller() access.Caller {
	return access.Caller{Who: ex.who, Known: ex.known, Unknown: ex.unknown, Scopes: ex.scopes}
}

// sharer returns whose share of places and memory the request takes. All strangers have one together.
func (ex *exchange) sharer() cove.Principal {
	if !ex.known {
		return cove.Principal{}
	}
	return ex.who
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	return ex
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

var requestIDPattern = pattern.New(`^[A-Za-z0-9._-]{1,64}$`)

// requestID takes over a caller's id, so that its logs and ours meet.
func requestID(h http.Header) string {
	if ids := h.Values("X-Request-Id"); len(ids) == 1 && requestIDPattern.MatchString(ids[0]) {
		return ids[0]
	}
	return "rq" + string(cove.NewExecutionID())[2:]
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
	armed   time.Time     // when the deadline was set last
	waited  time.Duration // in all writes together
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
	began := time.Now()
	n, err := w.ResponseWriter.Write(p)
	w.waited += time.Since(began)
	w.bytes += int64(n)
	return n, err
}

const (
	// A client may keep an answer waiting for leastWait in all, and a second more for each leastRate bytes that it has
	// taken: what it does not read takes room from others.
	leastWait = 30 * time.Second
	leastRate = 64 << 10
)

// patience returns how long the next write may wait for a client that has taken so many bytes, and has kept the writes
// before waiting for so long. It is pure.
func patience(timeout, waited time.Duration, taken int64) time.Duration {
	return min(timeout, leastWait+time.Duration(taken/leastRate)*time.Second-waited)
}

// arm moves the deadline for what is written next. Setting it is cheap, but
// not free, so a stream sets it once a second.
func (w *response) arm() {
	if now := time.Now(); now.Sub(w.armed) > min(time.Second, w.timeout/4) || w.armed.IsZero() {
		w.armed = now
		http.NewResponseController(w.ResponseWriter).SetWriteDeadline(now.Add(patience(w.timeout, w.waited, w.bytes)))
	}
}

// asksForPatience reports whether an answer with an error of this status has Retry-After.
func asksForPatience(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// setRetryAfter says in the header of an answer with an error when to try again: a second at least.
func setRetryAfter(h http.Header, status int, err error) {
	if asksForPatience(status) {
		h.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(cove.ErrorRetry(err).Seconds())))))
	}
}

// dropBody has a request answered whose body is not read: net/http would wait for the rest of it before it answers.
func (ex *exchange) dropBody() {
	if ex.r.ContentLength != 0 && ex.r.ProtoMajor == 1 {
		ex.w.Header().Set("Connection", "close")
	}
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// compat reports whether the request asks for that form.
func (ex *exchange) compat() bool { return ex.r.URL.Query().Get("compat") == "1" }
