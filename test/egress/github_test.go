//go:build linux

package egress

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hub is a GitHub of the lab's: enough of its API for gh.
type hub struct {
	mu   sync.Mutex
	done []string // what it was asked to do: "POST /repos/o/r/pulls", "mutation createPullRequest"
	keys map[string]bool
	with map[string]string // the last credential, by path
}

func newHub(l *lab) *hub {
	h := &hub{keys: map[string]bool{}, with: map[string]string{}}
	l.Site("api.github.com", h)
	return h
}

type object = map[string]any

// typeOf is a question for a type, under a name.
var typeOf = regexp.MustCompile(`(\w+): ?__type\(`)

// rootOf is the first field of a mutation, or nothing.
var rootOf = regexp.MustCompile(`^\s*mutation[^{]*\{\s*(\w+)`)

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys[r.Header.Get("Authorization")] = true
	h.with[r.URL.Path] = r.Header.Get("Authorization")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path != "/graphql" {
		h.done = append(h.done, r.Method+" "+r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/public-key") {
			fmt.Fprintf(w, `{"key_id":"1","key":%q}`, base64.StdEncoding.EncodeToString(make([]byte, 32)))
			return
		}
		fmt.Fprintf(w, "{\"url\": %q, \"body\": %q}\n", r.URL.Path, body)
		return
	}
	var asked struct {
		Query     string
		Variables map[string]any
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if ids, ok := asked.Variables["ids"].([]any); ok { // in which repositories nodes are
		var nodes []any
		for _, id := range ids {
			nodes = append(nodes, map[string]any{"PR_1": object{"repository": object{"nameWithOwner": "o/r"}},
				"R_1": object{"nameWithOwner": "o/r"}, "PR_2": object{"repository": object{"nameWithOwner": "other/private"}},
			}[id.(string)])
		}
		json.NewEncoder(w).Encode(object{"data": object{"nodes": nodes}})
		return
	}
	if m := rootOf.FindStringSubmatch(asked.Query); m != nil {
		h.done = append(h.done, "mutation "+m[1])
		answers := map[string]string{
			"createPullRequest": `{"pullRequest":{"id":"PR_1","url":"https://github.com/o/r/pull/7"}}`,
			"addComment":        `{"commentEdge":{"node":{"url":"https://github.com/o/r/pull/7#issuecomment-1"}}}`,
		}
		fmt.Fprintf(w, `{"data":{%q:%s}}`, m[1], cmp.Or(answers[m[1]], `{"clientMutationId":""}`))
		return
	}
	h.done = append(h.done, "query")
	data := map[string]any{} // what is asked for; gh takes nothing else
	for word, value := range map[string]any{
		"viewer": map[string]any{"login": "somebody", "id": "U_1"}, "repository": repository, "repo_000": repository,
		"organization": nil,
	} {
		if regexp.MustCompile(`\b` + word + `\s*[:({]`).MatchString(asked.Query) {
			data[word] = value
		}
	}
	for _, m := range typeOf.FindAllStringSubmatch(asked.Query, -1) { // which fields this GitHub has
		data[m[1]] = map[string]any{"fields": []any{}}
	}
	json.NewEncoder(w).Encode(map[string]any{"data": data})
}

// repository is the only one there is, with its only pull request.
var repository = map[string]any{
	"id": "R_1", "name": "r", "owner": map[string]any{"login": "o"}, "viewerPermission": "WRITE", "hasIssuesEnabled": true,
	"defaultBranchRef": map[string]any{"name": "main", "target": map[string]any{"oid": "abc"}}, "mergeCommitAllowed": true,
	"squashMergeAllowed": true, "rebaseMergeAllowed": true,
	"pullRequests": map[string]any{"nodes": []any{}, "totalCount": 0},
	"pullRequest": map[string]any{"id": "PR_1", "number": 7, "state": "OPEN", "title": "a change",
		"url": "https://github.com/o/r/pull/7", "headRefName": "feature", "baseRefName": "main",
		"mergeStateStatus": "CLEAN", "isInMergeQueue": false, "isMergeQueueEnabled": false,
		"headRepositoryOwner": map[string]any{"login": "o"}, "headRefOid": "abc",
		"headRepository": map[string]any{"id": "R_1", "name": "r"}, "lastCommit": map[string]any{"nodes": []any{}}},
}

// take is what it was asked to do since the last time.
func (h *hub) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.done
	h.done = nil
	return all
}

// writes are those that are not queries.
func writes(done []string) []string {
	return slices.DeleteFunc(done, func(s string) bool { return s == "query" || strings.HasPrefix(s, "GET ") })
}

// TestGitHubCLI: gh opens a pull request where that is allowed, and says in words why it does not merge one.
func TestGitHubCLI(t *testing.T) {
	if _, err := exec.LookPath("gh"); err != nil {
		t.Skip("gh is not installed")
	}
	l := newLab(t)
	h := newHub(l)
	flags := []string{"--allow", "api.github.com", "--credential", "hub"}
	const env = "export HOME=/tmp GH_NO_UPDATE_NOTIFIER=1 GH_PROMPT_DISABLED=1 NO_COLOR=1; "
	const create = env + `gh pr create --repo o/r --head feature --base main --title 'a change' --body 'of mine'`

	got := l.inside(t, create, append(flags, "--allow-pr")...)
	if strings.TrimSpace(got.stdout) != "https://github.com/o/r/pull/7" || got.code != 0 {
		t.Errorf("gh pr create: %+v", got)
	}
	if done := h.take(); !slices.Equal(writes(slices.Clone(done)), []string{"mutation createPullRequest"}) {
		t.Errorf("GitHub was asked for %q", done)
	}
	if keys := h.keys; len(keys) != 1 || !keys["Bearer "+key] {
		t.Errorf("the credentials are %v", keys)
	}

	got = l.inside(t, create, flags...)
	if got.code == 0 || !strings.Contains(got.stderr, "--allow-pr") || !strings.Contains(got.stderr, "HTTP 403") {
		t.Errorf("gh pr create without --allow-pr: %+v", got)
	}
	if done := writes(h.take()); len(done) > 0 {
		t.Errorf("GitHub was asked for %q", done)
	}

	for script, says := range map[string]string{
		`gh pr merge 7 --merge --repo o/r`:          "github: merge",
		`gh pr merge 7 --auto --merge --repo o/r`:   "github: merge",
		`gh pr review 7 --approve --repo o/r`:       "github: approve",
		`gh pr close 7 --repo o/r`:                  "github: change-pull-request",
		`gh api -X DELETE repos/o/r`:                "github: repository",
		`gh secret set X --body y --repo o/r`:       "github: secrets",
		`gh workflow run ci.yml --repo o/r`:         "github: workflows",
		`gh release create v1 --notes x --repo o/r`: "github: releases",
	} {
		got := l.inside(t, env+script, append(flags, "--allow-pr")...)
		if got.code == 0 || !strings.Contains(got.stderr+got.stdout, says) ||
			!strings.Contains(got.stderr+got.stdout, "ask a person") {
			t.Errorf("%s: %+v", script, got)
		}
		if done := writes(h.take()); len(done) > 0 {
			t.Errorf("%s: GitHub was asked for %q", script, done)
		}
	}
	for _, script := range []string{`gh pr comment 7 --body hello --repo o/r`,
		`gh pr review 7 --comment --body hello --repo o/r`} {
		if got := l.inside(t, env+script, append(flags, "--allow-pr")...); got.code != 0 {
			t.Errorf("%s: %+v", script, got)
		}
		if done := writes(h.take()); len(done) != 1 {
			t.Errorf("%s: GitHub was asked for %q", script, done)
		}
	}
}

// TestGitHubRepositories: where a policy names repositories, the token is for these alone, in REST and GraphQL, and gh
// does in them what it did.
func TestGitHubRepositories(t *testing.T) {
	l := newLab(t)
	h := newHub(l)
	policy := l.file(t, "repositories.yaml", "github: {pull_requests: allow, repositories: o/r}\n")
	flags := []string{"--allow", "api.github.com", "--credential", "hub", "--policy", policy}
	const ask = `ask() { curl -sS --max-time 20 -H "Authorization: token $GH_TOKEN" -H 'Content-Type: application/json' "$@"; echo; }
graphql() { ask https://api.github.com/graphql -d "$(jq -n --arg query "$1" '{$query}')"; }
`
	for _, c := range []struct {
		script, says string
		path         string // that arrives
		with         string // the credential of it
	}{
		{`ask https://api.github.com/repos/o/r/pulls/7`, `"url": "/repos/o/r/pulls/7"`, "/repos/o/r/pulls/7", "Bearer " + key},
		{`ask https://api.github.com/repos/other/private`, `"url": "/repos/other/private"`, "/repos/other/private", ""},
		{`ask https://api.github.com/user/repos`, `"url": "/user/repos"`, "/user/repos", ""},
		{`ask https://api.github.com/repos/other/r/pulls -d '{"title":"x"}'`, "works on o/r", "", ""},
		{`ask https://api.github.com/repos/other/r/issues/1/comments -d '{"body":"x"}'`, "github: repositories", "", ""},
		{`ask https://api.github.com/repos/o/r/hooks`, "github: webhooks", "", ""},
		{`graphql '{repository(owner:"o",name:"r"){id}}'`, `"data"`, "/graphql", "Bearer " + key},
		{`graphql '{repository(owner:"other",name:"private"){id}}'`, "is another repository", "", ""},
		{`graphql '{viewer{repositories(first:9){nodes{name}}}}'`, "may show what is in other repositories", "", ""},
		{`graphql 'mutation{addComment(input:{subjectId:"PR_1",body:"x"}){commentEdge{node{url}}}}'`, "issuecomment-1",
			"/graphql", "Bearer " + key},
		{`graphql 'mutation{addComment(input:{subjectId:"PR_2",body:"x"}){commentEdge{node{url}}}}'`, "other/private",
			"/graphql", "Bearer " + key},
		{`graphql '{node(id:"PR_9"){id}}'`, "is in no repository", "/graphql", "Bearer " + key},
	} {
		clear(h.with)
		got := l.inside(t, ask+c.script, flags...)
		if !strings.Contains(got.stdout, c.says) {
			t.Errorf("%s: %+v", c.script, got)
		}
		want := map[string]string{}
		if c.path != "" {
			want[c.path] = c.with
		}
		if !maps.Equal(h.with, want) {
			t.Errorf("%s: GitHub was asked %q, want %q", c.script, h.with, want)
		}
	}
	if done := writes(h.take()); !slices.Equal(done, []string{"mutation addComment"}) {
		t.Errorf("GitHub was asked for %q", done)
	}

	if _, err := exec.LookPath("gh"); err != nil {
		t.Skip("gh is not installed")
	}
	const env = "export HOME=/tmp GH_NO_UPDATE_NOTIFIER=1 GH_PROMPT_DISABLED=1 NO_COLOR=1; "
	for script, wrote := range map[string]string{
		`gh pr create --repo o/r --head feature --base main --title 'a change' --body x`: "mutation createPullRequest",
		`gh pr comment 7 --body hello --repo o/r`:                                        "mutation addComment",
		`gh pr review 7 --comment --body hello --repo o/r`:                               "mutation addPullRequestReview",
		`gh pr view 7 --repo o/r`:                                                        "", `gh pr list --repo o/r`: "", `gh issue list --repo o/r`: "",
		`gh pr list --repo o/r --label "help wanted"`: "", `gh repo view o/r`: "", `gh pr checks 7 --repo o/r`: "",
		`gh issue view 7 --repo o/r --comments`: "", `gh pr view 7 --repo o/r --json ` +
			`author,body,closingIssuesReferences,comments,commits,files,headRepository,latestReviews,mergedBy,reviewRequests,` +
			`reviews,statusCheckRollup,title`: "",
	} {
		got := l.inside(t, env+script, flags...)
		if strings.Contains(got.stderr+got.stdout, "blocked by Cove's gateway") || wrote != "" && got.code != 0 {
			t.Errorf("%s: %+v", script, got)
		}
		if done := writes(h.take()); wrote != "" && !slices.Equal(done, []string{wrote}) {
			t.Errorf("%s: GitHub was asked for %q", script, done)
		}
	}
	got := l.inside(t, env+`gh pr view 7 --repo other/private`, flags...)
	if got.code == 0 || !strings.Contains(got.stderr, "other/private") || !strings.Contains(got.stderr, "HTTP 403") {
		t.Errorf("gh in another repository: %+v", got)
	}
}

// TestGitHubAPI: the filter stands wherever the API can be reached, by every way, and what it refuses does not arrive.
func TestGitHubAPI(t *testing.T) {
	l := newLab(t)
	h := newHub(l)
	l.Site("ghe.lab.test", h)
	const ask = `ask() { curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' "$@"; }; J='Content-Type: application/json'
`
	got := l.inside(t, ask+`for way in '' '--noproxy *' '--noproxy * --http1.1'; do
ask $way https://api.github.com/repos/o/r
ask $way https://api.github.com/repos/o/r/pulls -H "$J" -d '{"title":"x"}'
ask $way https://api.github.com/repos/o/r/pulls/7/reviews -H "$J" -d '{"event":"COMMENT"}'
ask $way https://api.github.com/graphql -H "$J" -d '{"query":"{viewer{login}}"}'
ask $way -X PUT https://api.github.com/repos/o/r/pulls/7/merge -H "$J" -d '{}'
ask $way -X PUT http://api.github.com/repos/o/r/pulls/7/merge -H "$J" -d '{}'
ask $way https://api.github.com/repos/o/r/pulls/7/reviews -H "$J" -d '{"event":"APPROVE"}'
ask $way https://api.github.com/repos/o/r/pulls -H "$J" -H 'X-HTTP-Method-Override: DELETE' -d '{}'
ask $way https://api.github.com/repos/o/r/pulls -d '{}'
ask $way https://api.github.com/user -H 'X-HTTP-Method-Override: DELETE'
ask $way https://api.github.com/graphql -H "$J" -d '{"query":"mutation{mergePullRequest(input:{pullRequestId:\"x\"}){clientMutationId}}"}'
ask $way 'https://api.github.com/graphql?query=mutation%7BmergePullRequest%7D'
ask $way https://ghe.lab.test/api/v3/repos/o/r/git/refs -H "$J" -d '{}'
ask $way https://ghe.lab.test/o/r.git/git-receive-pack -d '{}'
echo; done`, "--network", "open", "--allow-pr", "--set", "gateway.github_hosts=ghe.lab.test")
	const want = "200 200 200 200 403 403 403 403 403 403 403 403 403 200"
	for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
		if strings.TrimSpace(line) != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	allowed := []string{"POST /repos/o/r/pulls", "POST /repos/o/r/pulls/7/reviews", "POST /o/r.git/git-receive-pack"}
	if done := writes(h.take()); !slices.Equal(done, slices.Repeat(allowed, 3)) {
		t.Errorf("GitHub was asked for %q", done)
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}

	got = l.inside(t,
		`curl -sS --max-time 20 -X DELETE https://api.github.com/repos/o/r; curl -sS --max-time 20 -X POST https://api.github.com/repos/o/r/pulls; curl -sS --max-time 20 https://api.github.com/repos/o/r`, "--allow", "api.github.com")
	for _, says := range []string{`"stage": "github"`, `"rule": "github: repository"`,
		`"message": "blocked by Cove's gateway`, `"allow": "start the sandbox with --allow-pr"`, `"url": "/repos/o/r"`} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("there is no %s", says)
		}
	}
	if strings.Contains(got.stderr, "--allow api.github.com") {
		t.Error("it says that policy denied it")
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
}

// TestTooMuch: a sandbox that asks too often is told to wait, for one host and
// whatever way it asks, and another host is not touched by it.
func TestTooMuch(t *testing.T) {
	l := newLab(t)
	got := l.inside(t,
		`for i in 1 2 3 4; do curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' https://good.lab.test/; done
curl -sS -i --http1.1 --max-time 20 http://good.lab.test/
for i in 1 2 3 4; do curl -sS -i --http1.1 --max-time 20 http://good.lab.test/; done | grep -i -e '^HTTP' -e retry-after -e '"rule"'
curl -sS --max-time 20 http://other.lab.test/`, "--network", "open", "--set", "gateway.rate_limit.per_second=0.01", "--set", "gateway.rate_limit.burst=3")
	for _, says := range []string{"200 200 200 429", "HTTP/1.1 200", "HTTP/1.1 429", "Retry-After: ",
		`"rule": "gateway: rate of one host"`, "GET other.lab.test/ over http"} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("there is no %q", says)
		}
	}
	if n := len(l.Requests()); n != 3+3+1 {
		t.Errorf("%d requests arrived", n)
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
}

// TestBroken: a host that fails is left alone for a while, and others are not.
func TestBroken(t *testing.T) {
	l := newLab(t)
	l.Page("/unwell", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	got := l.inside(t, `for u in nobody.lab.test:8081 good.lab.test/unwell missing.lab.test; do
for i in 1 2 3 4 5 6; do curl -sS --max-time 20 -o /dev/null -w '%{http_code} ' http://$u; done; done
curl -sS -i --http1.1 --max-time 20 http://good.lab.test/
curl -sS --max-time 20 http://other.lab.test/
sleep 11
curl -sS --max-time 20 http://good.lab.test/`, "--network", "open")
	want := "502 502 502 502 502 503 503 503 503 503 503 503 502 502 502 502 502 503 HTTP/1.1 503"
	if !strings.HasPrefix(got.stdout, want) {
		t.Errorf("want %s", want)
	}
	for _, says := range []string{"Retry-After: ", `"rule": "gateway: circuit breaker"`, "GET other.lab.test/ over http",
		"GET good.lab.test/ over http"} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("there is no %q", says)
		}
	}
	if n := len(l.Requests()); n != 5+1+1 {
		t.Errorf("%d requests arrived", n)
	}
	if t.Failed() {
		t.Logf("%+v", got)
	}
}
