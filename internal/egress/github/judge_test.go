package github

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
)

// verdict returns the rule of a refusal, or "allow".
func verdict(t *testing.T, err error) string {
	t.Helper()
	var r *Refusal
	switch {
	case err == nil:
		return "allow"
	case !errors.As(err, &r):
		t.Fatalf("not a refusal: %v", err)
	case r.Reason == "" || r.Rule == "" || len(r.Reason) > 300:
		t.Errorf("a refusal without words, or with many: %+v", r)
	}
	return strings.TrimPrefix(r.Rule, "github: ")
}

func try(method, path, query, body string, g Grants) ([]byte, error) {
	r := Request{Method: method, Path: path, Query: query, Header: http.Header{"Content-Type": {"application/json"}},
		Body: method != "GET" && method != "HEAD"}
	judged, err := Judge(r, g, func() ([]byte, error) { return []byte(body), nil })
	return judged.Body, err
}

// TestREST compares the table of routes with testdata/rest.txt.
func TestREST(t *testing.T) {
	data, err := os.ReadFile("testdata/rest.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		rows++
		path, query, has := strings.Cut(f[2], "?")
		if has && query == "" {
			query = "?" // present, though empty
		}
		_, err := try(f[1], path, query, "{}", Grants{})
		without := verdict(t, err)
		_, err = try(f[1], path, query, "{}", Grants{PullRequests: true})
		with := verdict(t, err)
		wantWithout, wantWith := "allow", "allow"
		switch f[0] {
		case "deny":
			wantWithout, wantWith = f[3], f[3]
		case "pr":
			wantWithout = f[3]
		}
		if f[0] == "deny" && f[3] == "form" && without == "pull-request" {
			without = "form" // the route is judged first
		}
		if without != wantWithout || with != wantWith {
			t.Errorf("%s: %s, and with --allow-pr %s", strings.TrimSpace(line), without, with)
		}
	}
	if rows < 300 {
		t.Errorf("%d rows", rows)
	}
}

// TestEveryRouteIsTried: testdata/rest.txt covers each row of the table.
func TestEveryRouteIsTried(t *testing.T) {
	data, err := os.ReadFile("testdata/rest.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := map[*route]bool{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] != "#" {
			path, _, _ := strings.Cut(f[2], "?")
			found[find(f[1], path)] = true
		}
	}
	found[find("POST", "/repos/o/r/pulls/1/reviews/2/events")] = true      // TestReview
	found[find("POST", "/repositories/1/pulls/1/reviews/2/events")] = true // TestReview
	for i := range routes() {
		if !found[&routes()[i]] {
			t.Errorf("%s %s is tried nowhere", routes()[i].methods, routes()[i].pattern)
		}
		if words[routes()[i].effect] == "" {
			t.Errorf("%s has no words", routes()[i].effect)
		}
	}
	for name, m := range mutations() {
		if words[m.effect] == "" {
			t.Errorf("%s has no words", name)
		}
	}
}

// TestReview: a review may only comment.
func TestReview(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"reviews", `{}`, "allow"},
		{"reviews", `{"event":"COMMENT"}`, "allow"},
		{"reviews", `{"event":null}`, "allow"},
		{"reviews", `{"body":"APPROVE","comments":[{"event":"APPROVE"}]}`, "allow"},
		{"reviews", `{"event":"APPROVE"}`, "approve"},
		{"reviews", `{"event":"REQUEST_CHANGES"}`, "approve"},
		{"reviews", `{"event":"DISMISS"}`, "approve"},
		{"reviews", `{"event":"comment"}`, "approve"},
		{"reviews", `{"event":"COMMENT "}`, "approve"},
		{"reviews", `{"event":""}`, "approve"},
		{"reviews", `{"event":["COMMENT"]}`, "approve"},
		{"reviews", `{"event":{"event":"COMMENT"}}`, "approve"},
		{"reviews", `{"event":1}`, "approve"},
		{"reviews", `{"event":"\u0041PPROVE"}`, "approve"},
		{"reviews", `{"event":"COMMENT","event":"APPROVE"}`, "form"},
		{"reviews", `{"event":"COMMENT","\u0065vent":"APPROVE"}`, "form"},
		{"reviews", `{"a":{"b":1,"b":2}}`, "form"},
		{"reviews", `[{"event":"COMMENT"}]`, "form"},
		{"reviews", `{"event":"COMMENT"}{"event":"APPROVE"}`, "form"},
		{"reviews", `event=COMMENT`, "form"},
		{"reviews", "\ufeff{}", "form"},
		{"reviews", "{\"body\":\"\xff\"}", "form"},
		{"reviews", ``, "form"},
		{"reviews", `"x"`, "form"},
		{"reviews", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "form"},
		{"reviews/2/events", `{"event":"COMMENT"}`, "allow"},
		{"reviews/2/events", `{"event":"APPROVE"}`, "approve"},
		{"reviews/2/events", `{}`, "approve"},
		{"reviews/2/events", `{"event":null}`, "approve"},
	} {
		for _, base := range []string{"/repos/o/r/pulls/1/", "/repositories/1/pulls/1/"} {
			sent, err := try("POST", base+c.path, "", c.body, Grants{PullRequests: true})
			if got := verdict(t, err); got != c.want {
				t.Errorf("%s %s: %s, want %s", c.path, c.body, got, c.want)
			}
			if err == nil && len(sent) == 0 {
				t.Errorf("%s %s: nothing is sent", c.path, c.body)
			}
		}
	}
}

// TestHeaders: headers that could change a request's meaning are refused.
func TestHeaders(t *testing.T) {
	for _, c := range []struct{ method, path, name, value string }{
		{"GET", "/user", "X-Http-Method-Override", "DELETE"},
		{"POST", "/repos/o/r/pulls", "X-Http-Method-Override", "DELETE"},
		{"POST", "/repos/o/r/pulls", "X_http_method_override", "DELETE"},
		{"POST", "/repos/o/r/pulls", "X-Http-Method", "DELETE"},
		{"POST", "/repos/o/r/pulls", "X-Method-Override", "DELETE"},
		{"GET", "/user", "X-Original-Url", "/repos/o/r/pulls/1/merge"},
		{"GET", "/user", "X-Rewrite-Url", "/x"},
		{"GET", "/user", "Upgrade", "websocket"},
		{"POST", "/repos/o/r/pulls", "Content-Encoding", "gzip"},
		{"POST", "/repos/o/r/pulls", "Content-Encoding", "identity"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "application/x-www-form-urlencoded"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "multipart/form-data; boundary=x"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "text/plain"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "application/json; charset=utf-7"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "application/json; charset=utf-16"},
		{"POST", "/repos/o/r/pulls", "Content-Type", "application/json, application/x-www-form-urlencoded"},
		{"POST", "/graphql", "Content-Type", "application/graphql"},
		{"POST", "/graphql", "Content-Type", "application/x-www-form-urlencoded"},
		{"POST", "/graphql", "Content-Encoding", "gzip"},
	} {
		r := Request{Method: c.method, Path: c.path, Header: http.Header{c.name: {c.value}}, Body: c.method == "POST"}
		_, err := Judge(r, Grants{PullRequests: true}, func() ([]byte, error) {
			return []byte(`{"query":"{viewer{login}}"}`), nil
		})
		if got := verdict(t, err); got != "form" {
			t.Errorf("%s %s with %s: %s is %s", c.method, c.path, c.name, c.value, got)
		}
	}
	for _, value := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8",
		"application/vnd.github+json", "application/vnd.github.v3+json"} {
		r := Request{Method: "POST", Path: "/repos/o/r/pulls", Header: http.Header{"Content-Type": {value}}, Body: true}
		if _, err := Judge(r, Grants{PullRequests: true}, func() ([]byte, error) { return []byte("{}"), nil }); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	if _, err := Judge(Request{Method: "GET", Path: "/user", Body: true}, Grants{}, nil); verdict(t, err) != "form" {
		t.Error("a GET with a body")
	}
	if _, err := Judge(Request{Method: "POST", Path: "/repos/o/r/pulls",
		Header: http.Header{"Content-Type": {"application/json", "text/plain"}}}, Grants{PullRequests: true}, nil); verdict(t,
		err) != "form" {
		t.Error("two types")
	}
}

// TestSentIsJudged: the body is encoded again, with all its content.
func TestSentIsJudged(t *testing.T) {
	const body = ` { "title" : "é <b> \u00e9 \ud83d\ude00", "n": 12345678901234567890.10, "draft":false, "x":[ ] , ` +
		`"y":{} } `
	sent, err := try("POST", "/repos/o/r/pulls", "", body, Grants{PullRequests: true})
	const want = `{"draft":false,"n":12345678901234567890.10,"title":"é <b> é 😀","x":[],"y":{}}`
	if err != nil || string(sent) != want {
		t.Errorf("%s, %v", sent, err)
	}
}

// TestRemedy: a refusal names --allow-pr exactly if that would allow the request.
func TestRemedy(t *testing.T) {
	var r *Refusal
	_, err := try("POST", "/repos/o/r/pulls", "", "{}", Grants{})
	if !errors.As(err, &r) || !strings.Contains(r.Remedy, "--allow-pr") {
		t.Errorf("%+v", r)
	}
	_, err = try("PUT", "/repos/o/r/pulls/1/merge", "", "{}", Grants{})
	if !errors.As(err, &r) || r.Remedy != "" || !strings.Contains(r.Reason, "merges") ||
		!strings.Contains(r.Reason, "person") {
		t.Errorf("%+v", r)
	}
}
