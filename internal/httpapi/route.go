package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// answer is an output that is nothing but a body.
type answer[T any] struct{ Body T }

var (
	executeErrors = []cove.Code{cove.NotFound, cove.TooLarge, cove.Unsupported, cove.StorageFull, cove.Canceled,
		cove.ModelUnreachable}
	storeErrors = []cove.Code{cove.StorageFull, cove.Canceled}
)

// everyRoute lists the statuses that the guards answer with on every route.
var everyRoute = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable}

// described has a description of the API: [edge], and each group of routes, which embeds it.
type described interface{ description() huma.API }

func (s *edge) description() huma.API { return s.api }

// route adds an operation. Its handler's errors are answered as the table of
// statuses says; codes are those it may return beyond the guards'.
func route[I, O any](s described, op huma.Operation, codes []cove.Code, handler func(context.Context, *I) (*O, error)) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	may := slices.Clone(everyRoute)
	for _, c := range codes {
		may = append(may, statuses[c])
	}
	if jsonRoutes[op.Method+" "+op.Path] {
		may = append(may, http.StatusRequestTimeout, http.StatusUnsupportedMediaType)
	}
	for _, status := range may {
		if op.Responses[strconv.Itoa(status)] == nil { // a route may have its own answer for a status
			op.Errors = append(op.Errors, status)
		}
	}
	op.MaxBodyBytes = maxBody + 1
	op.BodyReadTimeout = -1 // limitBody sets one
	huma.Register(s.description(), op, func(ctx context.Context, in *I) (*O, error) {
		ex := exchangeOf(ctx)
		if b, is := ex.r.Body.(*countedBody); is {
			b.decoded()
		}
		out, err := handler(ctx, in)
		if err != nil {
			return nil, translate(ex, err)
		}
		return out, nil
	})
	if gone := op.Responses[strconv.Itoa(statusClientGone)]; gone != nil {
		gone.Description = "The client went away" // net/http has no word for it
	}
	describeRetry(op.Responses, op.Errors)
	// huma documents 422 for what is answered with 400 here.
	if !slices.ContainsFunc(codes, func(c cove.Code) bool { return statuses[c] == http.StatusUnprocessableEntity }) {
		delete(op.Responses, strconv.Itoa(http.StatusUnprocessableEntity))
	}
}

// describeRetry describes the header of those errors that ask for patience.
func describeRetry(responses map[string]*huma.Response, errors []int) {
	for _, status := range errors {
		if asksForPatience(status) {
			least := 1.0
			responses[strconv.Itoa(status)].Headers = map[string]*huma.Param{"Retry-After": {
				Description: "Seconds after which to try again", Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &least}}}
		}
	}
}

// document describes a route whose answers huma does not make.
func (s *edge) document(op huma.Operation, kind string) *huma.Operation {
	schemas := s.api.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK),
		Content: map[string]*huma.MediaType{kind: {Schema: &huma.Schema{Type: huma.TypeString}}}}}
	for _, status := range slices.Sorted(slices.Values(everyRoute)) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status),
			Content: map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(typeOf[api.Error](), true, "")}}}
	}
	describeRetry(op.Responses, everyRoute)
	s.api.OpenAPI().AddOperation(&op)
	return &op
}

// stepByStep does something that takes a while and writes its steps as events, and its result as the last one of a
// name. What fails before the first step is answered with a status.
func (s *edge) stepByStep(ctx context.Context, ex *exchange, last string,
	do func(context.Context, func(workspace.Step)) (any, error)) {
	events := &eventStream{w: ex.w, clock: s.Clock}
	defer events.stop()
	began := s.Clock.Monotonic()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made, err := do(ctx, func(step workspace.Step) {
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		if !events.put("0", api.EventProgress, progressOf(step, s.Clock.Since(began))) {
			cancel() // the caller has gone
		}
	})
	switch {
	case err != nil && !events.begun():
		writeError(ex, err)
	case err != nil:
		ex.failure = err
		events.last(api.EventError, body(ex, err))
	default:
		if !events.begun() {
			events.open(s.Heartbeat)
		}
		events.last(last, made)
	}
}

func progressOf(s workspace.Step, elapsed time.Duration) api.Progress {
	return api.Progress{Step: s.Text, Done: s.Done, Bytes: s.Bytes, Total: s.Total, Elapsed: elapsed.Seconds()}
}

// stepResponses documents a stream of steps and the event that ends it.
func (s *edge) stepResponses(last string, result reflect.Type) map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{
		schemas.Schema(typeOf[api.Progress](), true, ""), schemas.Schema(result, true, ""),
		schemas.Schema(typeOf[api.Error](), true, "")}}
	return eventResponses(nil, "Always 0: the stream cannot be taken up again", data, api.EventProgress, last,
		api.EventError)
}
