package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove/api"
)

// describe is the head of the OpenAPI document; the routes add the rest.
func describe(version string) huma.Config {
	adoptErrors()
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(typeOf[api.Seconds](), typeOf[secondsSchema]())
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Cove", Version: version,
			Description: "Runs untrusted code in sandboxes. Every failed request is answered with an Error; its code is from " +
				"a closed list.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{
			Schemas: schemas,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key":    {Type: "apiKey", In: "header", Name: "X-API-Key"},
				"bearer": {Type: "http", Scheme: "bearer"},
			},
		},
		Security: []map[string][]string{{"key": {}}, {"bearer": {}}, {}}, // {}: where no keys are configured
	}
	return huma.Config{OpenAPI: doc, DefaultFormat: "application/json", RejectUnknownQueryParameters: true,
		Transformers: []huma.Transformer{compatForm},
		Formats:      map[string]huma.Format{"application/json": strictJSON}}
}

// mux routes requests, and remembers what was registered.
type mux struct {
	http.ServeMux
	patterns []string // "METHOD /pattern", in order of registration
}

// HandleFunc implements humago.Mux.
func (m *mux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, handler)
}

// secondsSchema is the schema of api.Seconds.
type secondsSchema struct{}

// Schema implements huma.SchemaProvider.
func (secondsSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeNumber, Format: "double", Description: "Seconds", Examples: []any{2.5}},
		{Type: huma.TypeString, Pattern: `^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`,
			Description: "With units: ns, us, ms, s, m, h", Examples: []any{"10s"}},
	}}
}
