package github

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// opens matches what --allow-pr may open, independently of the table.
var opens = regexp.MustCompile(`^/(repos/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+|repositories/[0-9]+)/` +
	`(pulls|issues/[0-9]+/comments|pulls/[0-9]+/comments|pulls/[0-9]+/comments/[0-9]+/replies|pulls/[0-9]+/reviews|` +
	`pulls/[0-9]+/reviews/[0-9]+/events)$`)

func FuzzREST(f *testing.F) {
	data, err := os.ReadFile("testdata/rest.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if row := strings.Fields(line); len(row) > 2 && row[0] != "#" {
			f.Add(row[1], row[2], `{"event":"COMMENT"}`)
		}
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.EqualFold(strings.TrimSuffix(path, "/"), "/graphql") {
			return
		}
		if _, err := try(method, path, "", body, Grants{}); err == nil && method != "GET" && method != "HEAD" {
			t.Errorf("%s %s is a write that nothing grants", method, path)
		}
		sent, err := try(method, path, "", body, Grants{PullRequests: true})
		if err != nil || method == "GET" || method == "HEAD" {
			return
		}
		if method != "POST" || !opens.MatchString(path) {
			t.Errorf("%s %s is allowed", method, path)
		}
		var said map[string]any
		if err := json.Unmarshal(sent, &said); err != nil {
			t.Fatalf("%q is sent: %v", sent, err)
		}
		if event, has := said["event"]; has && event != nil && event != "COMMENT" && strings.Contains(path, "/reviews") {
			t.Errorf("%s %s is allowed with the event %v", method, path, event)
		}
	})
}

func FuzzGraphQL(f *testing.F) {
	for _, c := range graphQLCases {
		f.Add(c.body)
	}
	d, err := policy.Parse("p.yaml", []byte("github: {repositories: o/r}"))
	if err != nil {
		f.Fatal(err)
	}
	limit := Grants{PullRequests: true, Repositories: []policy.Repositories{d.Repositories}}
	f.Fuzz(func(t *testing.T, body string) {
		limited, errLimited := judgeText([]byte(body), limit)
		sent, err := judgeText([]byte(body), Grants{})
		with, errWith := judgeText([]byte(body), Grants{PullRequests: true})
		if err == nil {
			for field := range roots(t, sent) {
				t.Errorf("%s: %s is a mutation that nothing grants", sent, field)
			}
			if errWith != nil || string(with) != string(sent) {
				t.Errorf("%s: granting more refuses it: %v", sent, errWith)
			}
		}
		if errLimited == nil && (errWith != nil || string(with) != string(limited)) {
			t.Errorf("%s: a limit allows it, or changes it: %v", limited, errWith)
		}
		if errWith != nil {
			return
		}
		for field := range roots(t, with) {
			if !mutations()[field].effect.granted() {
				t.Errorf("%s: %s is allowed", with, field)
			}
		}
		if again, err := judgeText(with, Grants{PullRequests: true}); err != nil || string(again) != string(with) {
			t.Errorf("%s is sent, which becomes %s, %v", with, again, err)
		}
	})
}

// roots returns the root fields of all mutations of a request.
func roots(t *testing.T, body []byte) map[string]bool {
	var sent struct{ Query string }
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%q is sent: %v", body, err)
	}
	doc, err := parser.ParseQuery(&ast.Source{Input: sent.Query})
	if err != nil {
		t.Fatalf("%q is sent: %v", body, err)
	}
	found := map[string]bool{}
	used := map[string]bool{}
	var collect func(set ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, s := range set {
			switch s := s.(type) {
			case *ast.Field:
				if s.Name != "__typename" {
					found[s.Name] = true
				}
			case *ast.InlineFragment:
				collect(s.SelectionSet)
			case *ast.FragmentSpread:
				for _, f := range doc.Fragments {
					if f.Name == s.Name && !used[s.Name] {
						used[s.Name] = true
						collect(f.SelectionSet)
					}
				}
			}
		}
	}
	for _, o := range doc.Operations {
		if o.Operation == ast.Mutation {
			collect(o.SelectionSet)
		}
	}
	return found
}
