package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
)

// describe is the head of the OpenAPI document; the routes add the rest.
func describe(version string) huma.Config {
	adoptErrors()
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(typeOf[api.Seconds](), typeOf[secondsSchema]())
	schemas.RegisterTypeAlias(typeOf[wholeExecution](), typeOf[api.Execution]())
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

// tags are the groups of operations, in the order of the documentation.
func tags() []*huma.Tag {
	return []*huma.Tag{
		{Name: "run", Description: "Run snippets of code in sandboxes that end with them."},
		{Name: "history", Description: "Read past executions, and the audit log."},
		{Name: "sandboxes", Description: "Manage long-lived sandboxes, and the commands and terminals in them."},
		{Name: "work", Description: "See what a sandbox has done in its repository, and take it over."},
		{Name: "agents", Description: "Manage coding agents and give them tasks, and ask models for single answers."},
		{Name: "profiles", Description: "Read the named configurations of sandboxes and agents."},
		{Name: "repositories", Description: "Manage the repositories of which sandboxes have copies, and upload folders."},
		{Name: "network", Description: "See what sandboxes try to reach, and answer the requests that wait."},
		{Name: "credentials", Description: "See the credentials that the gateway sets, never their values."},
		{Name: "gateway", Description: "Register the clients of a gateway: containers that Cove has not started."},
		{Name: "server", Description: "Ask the server for its health, its languages, its metrics and this documentation."},
	}
}

// complete describes the tags that the operations of a document have, what each needs of its caller, and what holds of
// all answers: no list in them is null. A request may still have null in place of a list.
func complete(doc *huma.OpenAPI, needs access.Table) {
	used, seen := map[string]bool{}, map[string]bool{}
	for pattern, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Put, path.Post, path.Delete, path.Patch} {
			if op == nil {
				continue
			}
			if n := needs[op.Method+" "+pattern].String(); n != "" {
				op.Description = strings.TrimSpace(op.Description + " " + n)
			}
			for _, tag := range op.Tags {
				used[tag] = true
			}
			for _, r := range op.Responses {
				for _, content := range r.Content {
					neverNull(doc.Components.Schemas, content.Schema, seen)
				}
			}
		}
	}
	doc.Tags = slices.DeleteFunc(tags(), func(t *huma.Tag) bool { return !used[t.Name] })
}

func neverNull(schemas huma.Registry, s *huma.Schema, seen map[string]bool) {
	if s == nil || seen[s.Ref] {
		return
	}
	if s.Ref != "" {
		seen[s.Ref] = true
		s = schemas.SchemaFromRef(s.Ref)
	}
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	more, _ := s.AdditionalProperties.(*huma.Schema)
	properties := slices.Collect(maps.Values(s.Properties))
	for _, below := range slices.Concat(s.OneOf, []*huma.Schema{s.Items, more}, properties) {
		neverNull(schemas, below, seen)
	}
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
