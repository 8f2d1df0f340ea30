package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestDurations: a request may have a duration as seconds or as a text with units, wherever it has one, and the
// description says so.
func TestDurations(t *testing.T) {
	h := start(t, nil)
	for _, c := range []struct {
		json string
		want time.Duration
	}{
		{`10`, 10 * time.Second}, {`2.5`, 2500 * time.Millisecond}, {`"10s"`, 10 * time.Second},
		{`"1m30s"`, 90 * time.Second}, {`"1.5s"`, 1500 * time.Millisecond}, {`"500ms"`, 500 * time.Millisecond},
		{`null`, 0},
	} {
		r := h.post("/execute", `{"language":"python","code":"x","timeout":`+c.json+`}`)
		if got := h.fake.request().Limits.Timeout; r.StatusCode != 200 || got != c.want {
			t.Errorf("timeout %s: %s, status %d: %s", c.json, got, r.StatusCode, r.body)
		}
	}
	for _, wrong := range []string{`"10"`, `"soon"`, `""`, `"10 s"`, `"1d"`, `true`, `[1]`, `{}`, `"99999999999h"`} {
		r := h.post("/execute", `{"language":"python","code":"x","timeout":`+wrong+`}`)
		if e := r.error(t); r.StatusCode != 400 || !strings.HasPrefix(e.Error, "timeout: ") {
			t.Errorf("timeout %s: status %d: %s", wrong, r.StatusCode, e.Error)
		}
	}

	var d document
	if err := json.Unmarshal([]byte(h.get("/openapi.json").body), &d); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"ExecuteRequest.timeout", "ExecRequest.timeout", "RunRequest.timeout",
		"HoldAnswer.for"} {
		name, property, _ := strings.Cut(field, ".")
		object := d.Components.Schemas[name].(map[string]any)
		schema := object["properties"].(map[string]any)[property]
		for value, right := range map[any]bool{2.5: true, "10s": true, "1m30s": true, "10": false, "": false,
			true: false} {
			if err := d.conforms(schema, value, field); (err == nil) != right {
				t.Errorf("%s: %v: %v", field, value, err)
			}
		}
	}
}
