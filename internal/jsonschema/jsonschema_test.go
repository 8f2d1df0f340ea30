package jsonschema

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

const people = `{
	"type": "object",
	"properties": {
		"people": {"type": "array", "items": {
			"type": "object",
			"properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}, "first name": {"const": "x"}},
			"required": ["name"],
			"additionalProperties": false
		}},
		"kind": {"enum": ["a", "b"]},
		"either": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]}
	}
}`

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name, schema, document string
		code                   cove.Code
		says                   string
	}{
		{"valid", people, `{"people": [{"name": "Ada", "age": 36}], "kind": "a", "either": "x"}`, "", ""},
		{"numbers are exact", `{"multipleOf": 0.01}`, `19.99`, "", ""},
		{"an integer as it may be written", `{"type": "integer"}`, `1.0`, "", ""},
		{"wrong type, deep", people, `{"people": [{"name": "Ada"}, {"name": "Bob", "age": "old"}]}`, cove.SchemaMismatch,
			"$.people[1].age: got string, want integer"},
		{"missing", people, `{"people": [{"age": 3}]}`, cove.SchemaMismatch, "$.people[0]: missing property 'name'"},
		{"too many", people, `{"people": [{"name": "x", "extra": 3}]}`, cove.SchemaMismatch,
			"$.people[0]: additional properties 'extra' not allowed"},
		{"a name with a space", people, `{"people": [{"name": "x", "first name": 3}]}`, cove.SchemaMismatch,
			`$.people[0]["first name"]: `},
		{"at the root", people, `[]`, cove.SchemaMismatch, "$: got array, want object"},
		{"every alternative", people, `{"either": 3}`, cove.SchemaMismatch,
			"$.either: got number, want object; $.either: got number, want string"},
		{"several, in order", people, `{"people": [{"name": ""}, {}], "kind": "c"}`, cove.SchemaMismatch,
			"$.kind: value must be one of 'a', 'b'; $.people[0].name: minLength: got 0, want 1; $.people[1]: missing property " +
				"'name'"},
		{"more than are listed", `{"items": {"type": "string"}}`, `[1,2,3,4,5,6,7]`, cove.SchemaMismatch, "; and 2 more"},
		{"a long value", `{"const": "x"}`, `"` + strings.Repeat("y", 5000) + `"`, cove.SchemaMismatch, "$: "},
		{"no JSON", people, `{"people": [}`, cove.SchemaMismatch, "not valid JSON"},
		{"two values", people, `{} {}`, cove.SchemaMismatch, "more after byte 2"},
		{"a closing brace too many", people, `{}}`, cove.SchemaMismatch, "more after byte 2"},
		{"nothing", people, ``, cove.SchemaMismatch, "not valid JSON"},
		{"a reference within", `{"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s"}`, `3`, cove.SchemaMismatch,
			"$: got number, want string"},
		{"a tree", `{"properties": {"next": {"$ref": "#"}}, "required": ["v"]}`, `{"v": 1, "next": {"v": 2, "next": {}}}`,
			cove.SchemaMismatch, "$.next.next: missing property 'v'"},
		{"the draft's own schema", `{"$ref": "https://json-schema.org/draft/2020-12/schema"}`, `{"type": "nothing"}`,
			cove.SchemaMismatch, "$.type: "},
		{"draft 4", `{"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": true}`, `3`,
			cove.SchemaMismatch, "$: "},
		{"false", `false`, `3`, cove.SchemaMismatch, "$: "},

		{"schema: no JSON", `{`, `{}`, cove.InvalidArgument, "the schema is not valid JSON"},
		{"schema: wrong keyword", `{"properties": {"a": {"type": "text"}}}`, `{}`, cove.InvalidArgument,
			"the schema is not valid: $.properties.a.type: "},
		{"schema: no such part", `{"$ref": "#/$defs/none"}`, `{}`, cove.InvalidArgument, "the schema is not valid: "},
		{"schema: a pattern", `{"pattern": "("}`, `""`, cove.InvalidArgument, "the schema is not valid: "},
		{"schema: dynamic", `{"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x"}}}`, `{}`, cove.InvalidArgument,
			"$dynamicRef and $recursiveRef are not supported (use $ref)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate([]byte(c.schema), []byte(c.document))
			if cove.ErrorCode(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q: %q", err, c.code, c.says)
			}
			if err != nil && len(err.Error()) > 3000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestNothingIsLoaded: a reference to a file that is there, and to a server that would answer.
func TestNothingIsLoaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type": "string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprint(w, `{"type": "string"}`)
	}))
	defer server.Close()
	for _, ref := range []string{"file://" + file, file, server.URL, "other.json"} {
		for _, keyword := range []string{"$ref", "$schema"} {
			err := Validate(fmt.Appendf(nil, `{%q: %q}`, keyword, ref), []byte(`"x"`))
			if cove.ErrorCode(err) != cove.InvalidArgument ||
				!strings.Contains(err.Error(), "nothing outside of the schema is loaded") {
				t.Errorf("%s %s: %v", keyword, ref, err)
			}
		}
	}
	if asked > 0 {
		t.Errorf("the server was asked %d times", asked)
	}
}

// doubling is a schema of n parts that judges a value 2^n times.
func doubling(n int, keyword, last string) string {
	var b strings.Builder
	b.WriteString(`{"$defs": {`)
	for i := range n {
		fmt.Fprintf(&b, `"a%d": {%q: [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}, `, i, keyword, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d": %s}, "$ref": "#/$defs/a0"}`, n, last)
	return b.String()
}

func TestBounds(t *testing.T) {
	nested := `{"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}`
	for _, c := range []struct {
		name, schema, document string
		code                   cove.Code
	}{
		{"doubling, valid", doubling(60, "allOf", `{"type": "integer"}`), `1`, cove.InvalidArgument},
		{"doubling, not valid", doubling(60, "anyOf", `{"type": "string"}`), `1`, cove.InvalidArgument},
		{"doubling, one of", doubling(60, "oneOf", `{"enum": [2, 3]}`), `1`, cove.InvalidArgument},
		{"doubling, an older draft", strings.Replace(doubling(60, "allOf", `{"not": {"type": "string"}}`), "{",
			`{"$schema": "http://json-schema.org/draft-07/schema#", `, 1), `1`, cove.InvalidArgument},
		{"doubling with the document", nested, strings.Repeat("[", 80) + strings.Repeat("]", 80), cove.InvalidArgument},
		{"a circle", `{"allOf": [{"$ref": "#"}]}`, `1`, cove.SchemaMismatch},
		{"many values, many alternatives", `{"items": {"enum": [` + strings.Repeat(`"x",`, 5000) + `"y"]}}`,
			"[" + strings.Repeat("1,", 100_000) + "1]", cove.InvalidArgument},
		{"a long schema", `{"description": "` + strings.Repeat("x", MaxSchema) + `"}`, `1`, cove.InvalidArgument},
		{"a schema of many parts", `{"enum": [` + strings.Repeat("1,", maxValues) + `1]}`, `1`, cove.InvalidArgument},
		{"large patterns", `{"pattern": "` + strings.Repeat("a{1000}", 500) + `"}`, `1`, cove.InvalidArgument},
		{"many patterns", `{"allOf": [` + strings.Repeat(`{"pattern": "`+strings.Repeat("a{1000}", 50)+`"},`, 100) + `{}]}`,
			`1`, cove.InvalidArgument},
		{"a pattern that others try for ever", `{"pattern": "^(a+)+$"}`, `"` + strings.Repeat("a", 1<<20) + `b"`,
			cove.SchemaMismatch},
		{"a long document", `{}`, `"` + strings.Repeat("x", MaxDocument) + `"`, cove.TooLarge},
		{"a deep document", `{"items": {"$ref": "#"}}`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
			cove.SchemaMismatch},
		{"a large exponent", `{"minimum": 0}`, `1e999999999`, cove.SchemaMismatch},
		{"a large exponent in the schema", `{"minimum": 1e-999999999}`, `1`, cove.InvalidArgument},
		{"a long number", `{"minimum": 0}`, strings.Repeat("9", 1<<20), cove.SchemaMismatch},
		{"a table", people, `{"people": [` + strings.Repeat(`{"name": "Ada", "age": 36},`, 20_000) + `{"name": "Ada"}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Validate([]byte(c.schema), []byte(c.document)); cove.ErrorCode(err) != c.code {
				t.Errorf("%.300v, want %q", err, c.code)
			}
		})
	}
}

// TestAgain: steps are counted for each validation anew, and the drafts' own
// schemas, which others use as well, are left as they are.
func TestAgain(t *testing.T) {
	s, err := Compile([]byte(`{"$ref": "https://json-schema.org/draft/2020-12/schema"}`))
	if err != nil {
		t.Fatal(err)
	}
	document := []byte(`{"properties": {"a": {"type": "string"}}}`)
	if err := s.Validate(document); err != nil {
		t.Fatal(err)
	}
	took := s.steps
	if _, err := Compile([]byte(`{"$ref": "https://json-schema.org/draft/2020-12/schema"}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(document); err != nil || s.steps != took || took == 0 {
		t.Errorf("%d steps, %d the first time: %v", s.steps, took, err)
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(people), []byte(`{"people": [{"name": "Ada"}]}`))
	f.Add([]byte(people), []byte(`{"people": [{"nme": "Ada"}]}`))
	f.Add([]byte(`{"$ref": "#"}`), []byte(`1`))
	f.Add([]byte(`{"if": {"type": "string"}, "then": {"pattern": "a+"}, "else": {"multipleOf": 2}}`), []byte(`3`))
	f.Add([]byte(`{"unevaluatedProperties": false, "patternProperties": {"^a": true}}`), []byte(`{"b": 1}`))
	f.Add([]byte(`{"$id": "http://x/y", "$defs": {"a": {"$id": "b"}}, "$ref": "b"}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, schema, document []byte) {
		err := Validate(schema, document)
		switch code := cove.ErrorCode(err); code {
		case "", cove.InvalidArgument, cove.SchemaMismatch, cove.TooLarge:
		default:
			t.Errorf("%s: %v", code, err)
		}
		if again := Validate(schema, document); (again == nil) != (err == nil) {
			t.Errorf("%v, and then %v", err, again)
		}
	})
}
