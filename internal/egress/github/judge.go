// Package github owns the decision which requests to GitHub's API may leave a sandbox, in addition to policy's decision
// on hosts. It is pure.
//
// Reading is allowed, except for endpoints that show or make tokens and secrets. Writing is refused, with few known
// exceptions: opening a pull request, commenting, and commenting in a review, if the sandbox has the grant (Grants). An
// unknown request counts as a write, and is refused.
//
// Where the grants name repositories (Grants.Repositories), writing elsewhere is refused, and so is what GraphQL could
// show of others (fields.txt); REST requests elsewhere leave without the sandbox's credential (Grants.Keyed).
//
// REST requests are judged by a table (routes.txt). Requests to the GraphQL API are parsed: every operation is judged
// by the fields at the root of its mutations, through aliases and fragments, with the values of variables.
//
// The judged request is the one that is sent: a body that mattered is encoded again from its parsed form.
package github

import (
	"net/http"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Request is one request to the API.
type Request struct {
	Server policy.Host // of the repositories, from Servers.Of
	Method string      // upper case
	Path   string      // of the API, from Servers.At; canonical (policy.CanonicalPath)
	Query  string      // of the URL, as received
	Header http.Header
	Body   bool // the request has a body
}

// Judge decides on a request. body reads its body, and is called only if the body matters. Errors: a *Refusal, or the
// error of body.
func Judge(r Request, g Grants, body func() ([]byte, error)) (Judged, error) {
	judge, err := r.judge(g)
	if err != nil || judge == nil {
		return Judged{}, err
	}
	if err := r.checkBody(); err != nil {
		return Judged{}, err
	}
	data, err := body()
	if err != nil {
		return Judged{}, err
	}
	return judge(data)
}

// judge decides on all but the body, and returns what judges it; nil if it does not matter.
func (r Request) judge(g Grants) (func([]byte) (Judged, error), error) {
	if err := r.checkHead(); err != nil {
		return nil, err
	}
	graphQL := strings.EqualFold(strings.TrimSuffix(r.Path, "/"), "/graphql")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		switch {
		case r.Body:
			return nil, form("a " + r.Method + " has a body")
		case graphQL && r.Query != "":
			return nil, form("a GraphQL query in a URL; send it by POST")
		case graphQL:
			return nil, nil
		}
		if rt := find(r.Method, r.Path); rt != nil {
			return nil, refuse(rt.effect)
		}
		return nil, nil
	}
	if graphQL {
		if r.Method != http.MethodPost {
			return nil, form("GraphQL by " + r.Method + "; send it by POST")
		}
		return func(data []byte) (Judged, error) { return judgeGraphQL(data, r.Server, g) }, nil
	}
	rt := find(r.Method, r.Path)
	switch {
	case rt == nil:
		return nil, refuse(unknown)
	case !rt.effect.granted():
		return nil, refuse(rt.effect)
	case !g.PullRequests:
		return nil, ungranted(words[rt.effect])
	case g.limited() && !g.Keyed(r.Server, r.Path):
		return nil, g.Outside(quoted(r.Path) + " is of another repository")
	}
	return func(data []byte) (Judged, error) { return judgeBody(data, rt) }, nil
}

// Keyed reports whether a request for a path of a server's API gets the sandbox's credential: where the grants name
// repositories, those for them, for the account's name, and for GraphQL, which is judged.
func (g Grants) Keyed(server policy.Host, path string) bool {
	if !g.limited() {
		return true
	}
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 4)
	switch {
	case len(segments) >= 3 && segments[0] == "repos":
		return g.Reach(server, segments[1]+"/"+segments[2])
	case len(segments) == 1:
		return segments[0] == "" || segments[0] == "user" || segments[0] == "rate_limit" || segments[0] == "graphql"
	}
	return false
}

// checkHead refuses headers that could change the request's meaning.
func (r Request) checkHead() error {
	for name := range r.Header {
		switch {
		case policy.Overrides(name):
			return form("the header " + name + " changes what a request means")
		case strings.EqualFold(name, "upgrade"):
			return form("the protocol would change")
		}
	}
	return nil
}

// checkBody refuses a write that is not one JSON text.
func (r Request) checkBody() error {
	if r.Query != "" {
		return form("parameters in the URL of a write; send them in the body")
	}
	if _, ok := r.Header["Content-Encoding"]; ok {
		return form("the body is compressed; send it as it is")
	}
	types := r.Header["Content-Type"]
	if len(types) > 1 || len(types) == 1 && !isJSON(types[0]) {
		return form("the body is not said to be JSON; send Content-Type: application/json")
	}
	return nil
}

// isJSON accepts application/json and vendor types of JSON, in UTF-8.
func isJSON(contentType string) bool {
	kind, parameters, has := strings.Cut(strings.ToLower(contentType), ";")
	kind = strings.TrimSpace(kind)
	if kind != "application/json" && !(strings.HasPrefix(kind, "application/vnd.github") &&
		strings.HasSuffix(kind, "json")) {
		return false
	}
	parameters = strings.ReplaceAll(strings.ReplaceAll(parameters, " ", ""), `"`, "")
	return !has || parameters == "charset=utf-8" || parameters == ""
}
