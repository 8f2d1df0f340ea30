package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
)

// describe is the head of the OpenAPI document; the routes add the rest.
func (s *Server) describe() huma.Config {
	adoptErrors()
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Cove", Version: s.Version,
			Description: "Runs untrusted code in sandboxes. Every failed request is answered with an Error; its code is from " +
				"a closed list.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key":    {Type: "apiKey", In: "header", Name: "X-API-Key"},
				"bearer": {Type: "http", Scheme: "bearer"},
			},
		},
		Security: []map[string][]string{{"key": {}}, {"bearer": {}}, {}}, // {}: where no keys are configured
	}
	return huma.Config{OpenAPI: doc, DefaultFormat: "application/json", RejectUnknownQueryParameters: true,
		Formats: map[string]huma.Format{"application/json": strictJSON}}
}

// everyRoute lists the statuses that the guards answer with on every route.
var everyRoute = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable}

// route adds an operation. Its handler's errors are answered as the table of
// statuses says; codes are those it may return beyond the guards'.
func route[I, O any](s *Server, op huma.Operation, codes []cove.Code, handler func(context.Context, *I) (*O, error)) {
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
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, translate(exchangeOf(ctx), err)
		}
		return out, nil
	})
	if gone := op.Responses[strconv.Itoa(statusClientGone)]; gone != nil {
		gone.Description = "The client went away" // net/http has no word for it
	}
	// huma documents 422 for what is answered with 400 here.
	if !slices.Contains(codes, cove.Unsupported) {
		delete(op.Responses, strconv.Itoa(http.StatusUnprocessableEntity))
	}
}
