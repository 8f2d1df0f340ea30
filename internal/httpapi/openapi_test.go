package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is the served OpenAPI document, as a checker of answers needs it.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]any }
	Tags       []struct{ Name, Description string }
}

type operation struct {
	Description string
	Tags        []string
	Responses   map[string]struct {
		Description string
		Headers     map[string]any
		Content     map[string]struct{ Schema any }
	}
	Security []map[string][]string
}

func loadDocument(t *testing.T, text string) document {
	t.Helper()
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("the OpenAPI document is not JSON: %v", err)
	}
	return d
}

// check says what of an answer the document does not have (probe A15).
func (d document) check(method, path string, status int, header http.Header, body string) error {
	op, ok := d.find(method, path)
	if !ok {
		if status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusUnauthorized ||
			status == http.StatusForbidden {
			return nil // there is no such operation, and the answer says so
		}
		return fmt.Errorf("%s %s is answered with %d and not documented", method, path, status)
	}
	r, ok := op.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("%s %s: status %d is not documented: %s", method, path, status, body)
	}
	for name := range r.Headers {
		if header.Get(name) == "" {
			return fmt.Errorf("%s %s: status %d lacks the header %s", method, path, status, name)
		}
	}
	if asksForPatience(status) && header.Get("Retry-After") != "" && r.Headers["Retry-After"] == nil {
		return fmt.Errorf("%s %s: status %d has a Retry-After that is not documented", method, path, status)
	}
	if len(r.Content) == 0 {
		if body != "" {
			return fmt.Errorf("%s %s: status %d has a body that is not documented: %q", method, path, status, body)
		}
		return nil
	}
	kind, parameters, err := mime.ParseMediaType(header.Get("Content-Type"))
	if parameters["compat"] != "" {
		kind = compatType
	}
	content, ok := r.Content[kind]
	if err != nil || !ok {
		return fmt.Errorf("%s %s: status %d has type %q, which is not documented", method, path, status,
			header.Get("Content-Type"))
	}
	if !strings.HasPrefix(kind, "application/json") || method == http.MethodHead {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return fmt.Errorf("%s %s: status %d: %v", method, path, status, err)
	}
	if err := d.conforms(content.Schema, v, "$"); err != nil {
		return fmt.Errorf("%s %s: status %d: %w in %s", method, path, status, err, body)
	}
	return nil
}

func (d document) find(method, path string) (operation, bool) {
	path, _, _ = strings.Cut(path, "?")
	if method == http.MethodHead {
		method = http.MethodGet
	}
	want := strings.Split(path, "/")
	for pattern, methods := range d.Paths {
		parts := strings.Split(pattern, "/")
		if slices.EqualFunc(parts, want, func(p, w string) bool { return p == w || strings.HasPrefix(p, "{") && w != "" }) {
			if op, ok := methods[strings.ToLower(method)]; ok { // a path may be matched by several patterns
				return op, true
			}
		}
	}
	return operation{}, false
}

// conforms knows the part of JSON Schema that the document uses, and fails on
// anything else, so that nothing passes unseen.
func (d document) conforms(schema any, v any, at string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: no schema", at)
	}
	for keyword := range s {
		if !slices.Contains([]string{"$ref", "type", "properties", "required", "additionalProperties", "items", "enum",
			"format", "description", "examples", "oneOf", "pattern",
			"title", "minimum", "maximum", "maxLength", "default"}, keyword) {
			return fmt.Errorf("%s: the checker does not know %q", at, keyword)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		return d.conforms(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], v, at)
	}
	if choices, ok := s["oneOf"].([]any); ok {
		fits := 0
		for _, choice := range choices {
			if d.conforms(choice, v, at) == nil {
				fits++
			}
		}
		if fits != 1 {
			return fmt.Errorf("%s: %v fits %d of %d schemas", at, v, fits, len(choices))
		}
		return nil
	}
	if !typeMatches(s["type"], v) {
		return fmt.Errorf("%s: %v is not of type %v", at, v, s["type"])
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Errorf("%s: %v is not one of %v", at, v, enum)
	}
	switch v := v.(type) {
	case string:
		if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Errorf("%s: %q is not of the form %s", at, v, pattern)
		}
	case []any:
		for i, item := range v {
			if err := d.conforms(s["items"], item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return d.object(s, v, at)
	}
	return nil
}

func (d document) object(s map[string]any, v map[string]any, at string) error {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			return fmt.Errorf("%s: %s is missing", at, name)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for name, value := range v {
		schema, ok := properties[name]
		if !ok {
			schema, ok = s["additionalProperties"].(map[string]any)
		}
		if !ok && len(properties) == 0 && s["additionalProperties"] == nil {
			continue // any object
		}
		if !ok {
			return fmt.Errorf("%s: %s is not documented", at, name)
		}
		if err := d.conforms(schema, value, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func typeMatches(declared any, v any) bool {
	if list, ok := declared.([]any); ok {
		return slices.ContainsFunc(list, func(d any) bool { return typeMatches(d, v) })
	}
	switch v := v.(type) {
	case nil:
		return declared == "null"
	case bool:
		return declared == "boolean"
	case string:
		return declared == "string"
	case float64:
		return declared == "number" || declared == "integer" && v == math.Trunc(v)
	case []any:
		return declared == "array"
	case map[string]any:
		return declared == "object"
	}
	return false
}

func TestTheCheckerNotices(t *testing.T) {
	h := start(t, nil)
	d := loadDocument(t, h.get("/openapi.json").body)
	header := http.Header{"Content-Type": {"application/json"}}
	good := h.post("/execute", snippet).body
	if err := d.check("POST", "/execute", 200, header, good); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"undocumented status": d.check("POST", "/execute", 418, header, good),
		"missing field":       d.check("POST", "/execute", 200, header, strings.Replace(good, `"exit_code":3,`, "", 1)),
		"undocumented field": d.check("POST", "/execute", 200, header,
			strings.Replace(good, `"exit_code"`, `"extra":1,"exit_code"`, 1)),
		"wrong type": d.check("POST", "/execute", 200, header,
			strings.Replace(good, `"exit_code":3`, `"exit_code":"3"`, 1)),
		"wrong enum": d.check("POST", "/execute", 200, header, strings.Replace(good, "completed", "done", 1)),
		"null list": d.check("POST", "/execute", 200, header,
			strings.Replace(good, `"security_events":[]`, `"security_events":null`, 1)),
		"wrong kind":        d.check("POST", "/execute", 200, http.Header{"Content-Type": {"text/html"}}, good),
		"unknown operation": d.check("PUT", "/execute", 200, header, good),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestDocumentDescribesEveryRoute(t *testing.T) {
	h := start(t, nil)
	d := loadDocument(t, h.get("/openapi.json").body)
	documented := 0
	for _, methods := range d.Paths {
		documented += len(methods)
	}
	for _, route := range h.s.Routes() {
		method, path, _ := strings.Cut(route, " ")
		op, ok := d.Paths[path][strings.ToLower(method)]
		if !ok {
			t.Errorf("%s is not documented", route)
		}
		for _, status := range []string{"401", "403", "429"} {
			if op.Responses[status].Content == nil {
				t.Errorf("%s: status %s is not documented", route, status)
			}
		}
		for status, r := range op.Responses {
			if r.Description == "" {
				t.Errorf("%s: status %s is not described", route, status)
			}
		}
	}
	if documented != len(h.s.Routes()) {
		t.Errorf("%d operations are documented, %d exist", documented, len(h.s.Routes()))
	}
	if len(d.Components.Schemas["Error"].(map[string]any)["required"].([]any)) != 3 {
		t.Error("an error has no three required fields")
	}
}

// TestDocumentSaysWhatThereIs: every tag is described, every operation too, and no list of an answer may be null, in
// the document of a server and in that of a gateway.
func TestDocumentSaysWhatThereIs(t *testing.T) {
	for name, text := range map[string]string{
		"server":  start(t, nil).get("/openapi.json").body,
		"gateway": start(t, asGateway).get("/openapi.json").body,
	} {
		d := loadDocument(t, text)
		described, used := map[string]bool{}, map[string]bool{}
		for _, tag := range d.Tags {
			if described[tag.Name] || !strings.HasSuffix(tag.Description, ".") {
				t.Errorf("%s: the tag %s is described twice or without a sentence: %q", name, tag.Name, tag.Description)
			}
			described[tag.Name] = true
		}
		for path, methods := range d.Paths {
			for method, op := range methods {
				at := fmt.Sprintf("%s: %s %s", name, method, path)
				if !strings.HasSuffix(op.Description, ".") {
					t.Errorf("%s is described by %q", at, op.Description)
				}
				if len(op.Tags) != 1 || !described[op.Tags[0]] {
					t.Errorf("%s has tags %q, of %v", at, op.Tags, described)
				}
				for _, tag := range op.Tags {
					used[tag] = true
				}
				for status, r := range op.Responses {
					for _, content := range r.Content {
						if at := d.nullList(content.Schema, map[string]bool{}); at != "" {
							t.Errorf("%s: status %s: a list may be null: %s", name, status, at)
						}
					}
				}
			}
		}
		if !maps.Equal(described, used) {
			t.Errorf("%s: tags are %v, and used are %v", name, described, used)
		}
	}
}

// asGateway makes a server one of a gateway alone, whose document is all that is asked for.
func asGateway(o *Options) { o.Clients = struct{ Clients }{} }

// nullList returns a place in a schema where a list may be null; empty if there is none.
func (d document) nullList(schema any, seen map[string]bool) (at string) {
	switch s := schema.(type) {
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			if seen[ref] {
				return ""
			}
			seen[ref] = true
			return d.nullList(d.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")], seen)
		}
		if types, ok := s["type"].([]any); ok && slices.Contains(types, any("array")) && slices.Contains(types, any("null")) {
			return fmt.Sprint(s["description"])
		}
		for name, value := range s {
			if below := d.nullList(value, seen); below != "" {
				return name + ": " + below
			}
		}
	case []any:
		for _, value := range s {
			if below := d.nullList(value, seen); below != "" {
				return below
			}
		}
	}
	return ""
}
