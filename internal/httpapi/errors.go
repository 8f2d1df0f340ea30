package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// statusClientGone is the usual status for a request whose client has gone.
const statusClientGone = 499

// statuses is the one table from codes to HTTP statuses.
var statuses = map[cove.Code]int{
	cove.InvalidArgument: http.StatusBadRequest,
	cove.Unauthenticated: http.StatusUnauthorized,
	cove.Forbidden:       http.StatusForbidden,
	cove.NotFound:        http.StatusNotFound,
	cove.Conflict:        http.StatusConflict,
	cove.TooLarge:        http.StatusRequestEntityTooLarge,
	cove.Unsupported:     http.StatusUnprocessableEntity,
	cove.RuntimeMissing:  http.StatusUnprocessableEntity,
	cove.ImageMissing:    http.StatusUnprocessableEntity,
	cove.Overloaded:      http.StatusTooManyRequests,
	cove.Unavailable:     http.StatusServiceUnavailable,
	cove.Shutdown:        http.StatusServiceUnavailable,
	cove.StorageFull:     http.StatusInsufficientStorage,
	cove.Corrupt:         http.StatusInternalServerError,
	cove.Canceled:        statusClientGone,
	cove.Internal:        http.StatusInternalServerError,

	cove.AgentFailed:      http.StatusBadGateway,
	cove.AgentProtocol:    http.StatusBadGateway,
	cove.SchemaMismatch:   http.StatusUnprocessableEntity,
	cove.ModelUnreachable: http.StatusBadGateway,
	cove.LimitReached:     http.StatusUnprocessableEntity,
}

// statusError is an error whose status its code does not give.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }

func (e *statusError) Unwrap() error { return e.err }

// beyondShare is the refusal of what would be more than a caller's share.
func beyondShare(format string, args ...any) error {
	return &statusError{http.StatusServiceUnavailable,
		cove.Errorf(cove.Overloaded, format, args...).WithHint("try again in a second")}
}

func statusOf(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.status
	}
	if status, ok := statuses[cove.ErrorCode(err)]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// hidden are the codes whose messages speak of the server's insides; only the owner and the log see them. An error that
// says when to ask again is meant for every caller.
var hidden = map[cove.Code]string{
	cove.Internal:    "the server failed",
	cove.Corrupt:     "stored state cannot be read",
	cove.StorageFull: "the server cannot store anything",
	cove.Unavailable: "something that the server needs does not answer",
}

// body returns the description of err for the caller of ex.
func body(ex *exchange, err error) api.Error {
	b := api.Error{Code: string(cove.ErrorCode(err)), RequestID: ex.id}
	if general, hide := hidden[cove.Code(b.Code)]; hide && !ex.who.IsOwner() && cove.ErrorRetry(err) == 0 {
		b.Error, b.Hint = general, "the server's log has the reason, under this request id"
	} else {
		b.Error, b.Hint = cove.ErrorMessage(err), cove.ErrorHint(err)
	}
	if b.Hint != "" {
		b.Error += " (" + b.Hint + ")"
	}
	return b
}

// writeError answers with err, unless the answer has begun.
func writeError(ex *exchange, err error) {
	ex.failure = err
	if ex.w.status != 0 {
		return
	}
	status := statusOf(err)
	h := ex.w.Header()
	h.Set("Content-Type", "application/json")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="cove"`)
	}
	setRetryAfter(h, status, err)
	ex.w.WriteHeader(status)
	json.NewEncoder(ex.w).Encode(body(ex, err)) // a client that has gone needs no answer
}

// failure is an error on its way through huma.
type failure struct {
	wire
	status  int
	headers http.Header
}

// wire is api.Error under a name that leaves room for the method Error.
type wire api.Error

func (f *failure) Error() string { return f.wire.Error }

func (f *failure) GetStatus() int { return f.status }

func (f *failure) GetHeaders() http.Header { return f.headers }

// Schema implements huma.SchemaProvider.
func (f *failure) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(typeOf[api.Error](), true, "")
}

// listCodes has the schema of Error list its codes.
func listCodes(schemas huma.Registry) {
	ref := schemas.Schema(typeOf[api.Error](), true, "")
	code := schemas.SchemaFromRef(ref.Ref).Properties["code"]
	for _, c := range cove.Codes {
		code.Enum = append(code.Enum, string(c))
	}
}

var adoptOnce sync.Once

// adoptErrors makes huma speak of errors as the API does. huma keeps this in package variables; the functions put there
// depend on their arguments only, so it does not matter which server sets them.
func adoptErrors() {
	adoptOnce.Do(func() {
		huma.ValidateStrictCasing = true
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			return &failure{status: status, wire: wire{Error: msg}}
		}
		huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
			ex := exchangeOf(ctx.Context())
			f := translate(ex, problem(status, msg, errs))
			if f.status == http.StatusServiceUnavailable {
				ex.dropBody()
				setRetryAfter(ex.w.Header(), f.status, ex.failure) // huma writes no header of such an error
			}
			return f
		}
	})
}

// translate prepares err for huma to write.
func translate(ex *exchange, err error) *failure {
	ex.failure = err
	f := &failure{wire: wire(body(ex, err)), status: statusOf(err), headers: http.Header{}}
	setRetryAfter(f.headers, f.status, err)
	return f
}

// problem turns what huma found wrong with a request into an error of ours.
func problem(status int, msg string, errs []error) error {
	var details []string
	for _, err := range errs {
		var own *statusError
		if errors.As(err, &own) {
			return own
		}
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			details = append(details, detail(d)) // without its value, which may be a secret
		} else if err != nil {
			details = append(details, err.Error())
		}
	}
	const most = 5
	if len(details) > most {
		details = append(details[:most], fmt.Sprintf("and %d more", len(details)-most))
	}
	if len(details) > 0 {
		msg = strings.Join(details, "; ")
	}
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return cove.Errorf(cove.InvalidArgument, "%s", msg).WithHint("GET /openapi.json describes requests")
	case http.StatusRequestEntityTooLarge:
		return cove.Errorf(cove.TooLarge, "the request body is larger than %d MiB", maxBody>>20).WithHint("send less")
	case http.StatusUnsupportedMediaType:
		return &statusError{status, cove.Errorf(cove.InvalidArgument,
			"the body must be application/json").WithHint("send Content-Type: application/json")}
	case http.StatusRequestTimeout:
		return &statusError{status, cove.Errorf(cove.Canceled, "the request body did not come in time")}
	}
	return cove.Errorf(cove.InvalidArgument, "the request body broke off: %s", msg).WithHint("send it whole")
}

func detail(d *huma.ErrorDetail) string {
	if d.Message == validation.MsgExpectedMatchExactlyOneSchema { // one of a request's is a duration
		d.Message = `expected seconds, such as 2.5, or a duration, such as "10s"`
	}
	where := strings.TrimPrefix(d.Location, "body.")
	if where == "" || where == "body" {
		return d.Message
	}
	where = strconv.Quote(truncate(where, 100)) // it has keys of the caller's
	return where[1:len(where)-1] + ": " + d.Message
}
