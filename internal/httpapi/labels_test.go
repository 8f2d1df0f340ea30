package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestLabels: an execution and a sandbox keep the labels of their request. Lists are filtered by all labels that are
// asked for, within what the caller may see: the labels of one key list nothing of another's.
func TestLabels(t *testing.T) {
	e := newEstate(t)
	names := map[string]string{}
	execute := func(name, who, labels string) {
		t.Helper()
		body := `{"language":"python","code":"pass","labels":` + labels + `}`
		code, text := e.ask(t, who, "POST", "/execute", body)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", name, code, text)
		}
		x := decode[api.Execution](t, reply{&http.Response{StatusCode: code}, text}, http.StatusOK)
		got := get[api.Execution](t, e, who, "/executions/"+x.ID)
		if got.Labels["team"] == "" || x.Labels["team"] != got.Labels["team"] {
			t.Errorf("%s: the answer has the labels %v, the record %v", name, x.Labels, got.Labels)
		}
		names[x.ID] = name
	}
	execute("one", keeper, `{"team":"a","stage":"x=y"}`)
	execute("two", keeper, `{"team":"b"}`)
	execute("theirs", stranger, `{"team":"a","stage":"x=y"}`)
	execute("owners", machine, `{"team":"a"}`)
	for name, b := range map[string]struct{ who, labels string }{
		"one": {keeper, `{"team":"a","stage":"x=y"}`}, "two": {keeper, `{"team":"b"}`},
		"theirs": {stranger, `{"team":"a","stage":"x=y"}`}, "owners": {machine, `{"team":"a"}`},
	} {
		code, text := e.ask(t, b.who, "POST", "/sandboxes", `{"name":"`+name+`","labels":`+b.labels+`}`)
		if code != http.StatusOK || !strings.Contains(text, "event: created") {
			t.Fatalf("%s: %d %s", name, code, text)
		}
	}

	for _, c := range []struct {
		who    string
		labels []string
		want   string
	}{
		{keeper, nil, "one two"},
		{keeper, []string{"team=a"}, "one"},
		{keeper, []string{"team=b"}, "two"},
		{keeper, []string{"team=a", "stage=x=y"}, "one"},
		{keeper, []string{"team=b", "stage=x=y"}, ""},
		{keeper, []string{"team="}, ""},
		{keeper, []string{"TEAM=a"}, ""},
		{stranger, []string{"team=a"}, "theirs"},
		{stranger, []string{"team=b"}, ""},
		{machine, []string{"team=a"}, "one owners theirs"},
		{machine, []string{"team=b"}, "two"},
	} {
		query := "?" + url.Values{"label": c.labels}.Encode()
		var executions, sandboxes []string
		for _, x := range get[api.ExecutionList](t, e, c.who, "/executions"+query).Executions {
			executions = append(executions, names[x.ID])
		}
		for _, b := range get[api.SandboxList](t, e, c.who, "/sandboxes"+query).Sandboxes {
			sandboxes = append(sandboxes, b.Name)
		}
		for kind, got := range map[string][]string{"executions": executions, "sandboxes": sandboxes} {
			slices.Sort(got)
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("%q asks for %s of %q: %q, want %q", c.who, kind, c.labels, got, c.want)
			}
		}
	}
}

// TestWrongLabels: labels that are malformed, too long or too many are refused, in requests and in filters.
func TestWrongLabels(t *testing.T) {
	e := newEstate(t)
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf(`"k%d":"v"`, i))
	}
	for name, labels := range map[string]string{
		"no key": `{"":"v"}`, "an equals sign": `{"a=b":"v"}`, "a number": `{"a":1}`, "a list": `["a=b"]`,
		"a long key": `{"` + strings.Repeat("k", 64) + `":"v"}`, "a long value": `{"k":"` + strings.Repeat("v", 1025) + `"}`,
		"too many": `{` + strings.Join(many, ",") + `}`,
	} {
		for path, rest := range map[string]string{"/execute": `"language":"python","code":"pass",`, "/sandboxes": ``} {
			code, text := e.ask(t, keeper, "POST", path, `{`+rest+`"labels":`+labels+`}`)
			if code != http.StatusBadRequest {
				t.Errorf("%s: POST %s: %d %s", name, path, code, text)
			}
		}
	}
	queries := []string{
		"label=team", "label=%3Da", "label=a%3D1&label=b", strings.Repeat("label=a%3D1&", 65) + "label=b%3D1",
	}
	for _, query := range queries {
		for _, path := range []string{"/executions", "/sandboxes"} {
			if code, text := e.ask(t, keeper, "GET", path+"?"+query, ""); code != http.StatusBadRequest {
				t.Errorf("GET %s?%.40s: %d %s", path, query, code, text)
			}
		}
	}
	if l := get[api.ExecutionList](t, e, machine, "/executions"); len(l.Executions) > 0 {
		t.Errorf("what was refused is recorded: %+v", l.Executions)
	}
}
