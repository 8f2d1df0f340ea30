package github

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// limitedTo returns grants for pull requests in repositories.
func limitedTo(t *testing.T, repositories string) Grants {
	t.Helper()
	d, err := policy.Parse("p.yaml", []byte("github: {repositories: ["+repositories+"]}"))
	if err != nil {
		t.Fatal(err)
	}
	return Grants{PullRequests: true, Repositories: []policy.Repositories{d.Repositories}}
}

// TestReachGraphQL: where the repositories are limited, GraphQL shows and changes nothing of others. WANT is the ids
// that GitHub is asked about, or the rule that refuses.
func TestReachGraphQL(t *testing.T) {
	const (
		elsewhere = "github: repositories"
		form      = "github: form"
	)
	for _, c := range []struct{ body, want string }{
		{ask(`{viewer{login}}`), ""},
		{ask(`{repository(owner:"o",name:"r"){id name owner{login} isPrivate defaultBranchRef{name target{oid}} ` +
			`pullRequest(number:7){title author{login ...on User{id name}} comments(last:3){nodes{body author{login}}}}}}`), ""},
		{ask(`query($o:String!,$n:String!){x:repository(owner:$o,name:$n){id}}`, `"variables":{"o":"O","n":"R"}`), ""},
		{ask(`query($o:String="o"){repository(owner:$o,name:"r"){...f}} fragment f on Repository{issues{nodes{...g}}} ` +
			`fragment g on Issue{title}`), ""},
		{ask(`fragment repo on Repository{id name owner{login} viewerPermission defaultBranchRef{name} isPrivate} ` +
			`query N{viewer{login} repo_000: repository(owner:"o",name:"r"){...repo parent{...repo}}}`), ""},
		{ask(`{__type(name:"PullRequest"){fields(includeDeprecated:true){name}} rateLimit{cost}}`), ""},
		{ask(`{repository(owner:"more",name:"any"){id}}`), ""},
		{ask(`query($q:String!){search(query:$q,type:ISSUE,first:5){issueCount nodes{...on PullRequest{title}}}}`,
			`"variables":{"q":"repo:o/r is:pr label:\"help wanted\" author:@me"}`), ""},
		{ask(`{node(id:"PR_1"){...on PullRequest{title}}}`), "PR_1"},
		{ask(`query($ids:[ID!]!){nodes(ids:$ids){id}}`, `"variables":{"ids":["A","B"]}`), "A B"},
		{ask(`mutation{addComment(input:{subjectId:"PR_1",body:"x"}){commentEdge{node{url}}}}`), "PR_1"},
		{ask(`mutation($input:CreatePullRequestInput!){createPullRequest(input:$input){pullRequest{id url}}}`,
			`"variables":{"input":{"repositoryId":"R_1","headRepositoryId":"R_2","clientMutationId":"x","title":"t"}}`),
			"R_1 R_2"},
		{ask(`mutation($id:ID!){addPullRequestReview(input:{pullRequestId:$id,event:COMMENT}){pullRequestReview{id}}}`,
			`"variables":{"id":"PR_1"}`), "PR_1"},
		{ask(`mutation{addPullRequestReviewComment(input:{inReplyTo:"C_1",pullRequestReviewId:null}){comment{id}}}`), "C_1"},

		{ask(`{repository(owner:"o",name:"secret"){id}}`), elsewhere},
		{ask(`{repository(owner:"other",name:"r"){id}}`), elsewhere},
		{ask(`{a:repository(owner:"o",name:"r"){id} b:repository(owner:"o",name:"x"){id}}`), elsewhere},
		{ask(`query($o:String="x"){repository(owner:$o,name:"r"){id}}`), elsewhere},
		{ask(`query A{viewer{login}} query B{repository(owner:"o",name:"x"){id}}`, `"operationName":"A"`), elsewhere},
		{ask(`{...f} fragment f on Query{repository(owner:"o",name:"x"){id}}`), elsewhere},
		{ask(`{viewer{repositories(first:100){nodes{nameWithOwner}}}}`), elsewhere},
		{ask(`{viewer{...on User{issues(first:9){nodes{url}}}}}`), elsewhere},
		{ask(`{viewer{bio}}`), elsewhere},
		{ask(`{organization(login:"o"){repository(name:"x"){object(expression:"HEAD:a"){id}}}}`), elsewhere},
		{ask(`{organization(login:"o"){repository(name:"x"){issue(number:1){id}}}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){owner{...on User{repositories{nodes{name}}}}}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){issue(number:1){repository{owner{repository(name:"x"){issues{nodes{id}}}}}}}}`),
			elsewhere},
		{ask(`{repository(owner:"o",name:"r"){parent{issues(first:1){nodes{title}}}}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){forks(first:1){nodes{issues{nodes{id}}}}}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){issue(number:1){timelineItems{nodes{...on CrossReferencedEvent{source{` +
			`...on Issue{body}}}}}}}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){...f}} fragment f on Repository{parent{...g}} ` +
			`fragment g on Repository{pullRequests{totalCount}}`), elsewhere},
		{ask(`{repository(owner:"o",name:"r"){pullRequest(number:1){closingIssuesReferences{nodes{title}}}}}`), elsewhere},
		{ask(`{search(query:"secret in:file",type:REPOSITORY,first:1){nodes{...on Repository{name}}}}`), elsewhere},
		{ask(`{search(query:"repo:o/r",type:REPOSITORY,first:1){repositoryCount}}`), elsewhere},
		{ask(`{search(query:"is:pr",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"repo:o/r repo:o/x",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"repo:o/r OR is:private",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"repo:o/r user:o",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"\"repo:o/r\" is:private",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"(repo:o/r) is:private",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{search(query:"-repo:o/r",type:ISSUE,first:1){issueCount}}`), elsewhere},
		{ask(`{resource(url:"https://github.com/o/x"){url}}`), elsewhere},
		{ask(`{relay{repository(owner:"o",name:"x"){id}}}`), elsewhere},
		{ask(`{repository(owner:"o",owner:"x",name:"r"){id}}`), form},
		{ask(`{repository(name:"r"){id}}`), form},
		{ask(`{repository(owner:["o"],name:"r"){id}}`), form},
		{ask(`{node(id:7){id}}`), "7"},
		{ask(`mutation{addComment(input:{subjectId:["PR_1"]}){clientMutationId}}`), form},
		{ask(`mutation{addComment(input:{body:"x",subjectId:"PR_1"}){subject{...on Issue{repository{issues{nodes{id}}}}}}}`),
			elsewhere},
		{ask(`{nodes(ids:[` + strings.Repeat(`"a",`, maxNodes+1) + `]){id}}`), form},
	} {
		judged, err := judgeGraphQL([]byte(c.body), hostOf(t, "github.com"), limitedTo(t, "o/r, more/*"))
		got := strings.Join(slices.Sorted(slices.Values(judged.Nodes)), " ")
		if refused, ok := err.(*Refusal); ok {
			got = refused.Rule
		} else if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("%s: %q (%v), want %q", c.body, got, err, c.want)
		}
	}
}

// TestReachREST: where the repositories are limited, nothing is written to others, and what is read of them leaves
// without the credential.
func TestReachREST(t *testing.T) {
	for _, c := range []struct {
		host, method, path string
		refused, keyed     bool
	}{
		{"github.com", "GET", "/repos/o/r", false, true},
		{"github.com", "GET", "/repos/O/R/issues/1", false, true},
		{"github.com", "POST", "/repos/o/r/pulls", false, true},
		{"github.com", "GET", "/user", false, true},
		{"github.com", "GET", "/", false, true},
		{"github.com", "GET", "/rate_limit", false, true},
		{"github.com", "GET", "/repos/o/secret", false, false},
		{"github.com", "GET", "/repos/o", false, false},
		{"github.com", "GET", "/Repos/o/r", false, false},
		{"github.com", "GET", "/user/repos", false, false},
		{"github.com", "GET", "/user/", false, false},
		{"github.com", "GET", "/search/code", false, false},
		{"github.com", "GET", "/repositories/1", false, false},
		{"github.com", "GET", "/orgs/o/repos", false, false},
		{"github.com", "POST", "/repos/o/secret/pulls", true, false},
		{"github.com", "POST", "/repos/other/r/issues/1/comments", true, false},
		{"github.com", "POST", "/repositories/1/pulls", true, false},
		{"ghe.example.com", "GET", "/repos/o/r", false, false},
		{"ghe.example.com", "POST", "/repos/o/r/pulls", true, false},
	} {
		g := limitedTo(t, "o/r")
		server := hostOf(t, c.host)
		r := Request{Server: server, Method: c.method, Path: c.path, Body: c.method == "POST",
			Header: http.Header{"Content-Type": {"application/json"}}}
		_, err := Judge(r, g, func() ([]byte, error) { return []byte("{}"), nil })
		refused, _ := err.(*Refusal)
		if (refused != nil) != c.refused || refused != nil && refused.Rule != "github: repositories" {
			t.Errorf("%v: %v", c, err)
		}
		if keyed := g.Keyed(server, c.path); keyed != c.keyed {
			t.Errorf("%v: keyed %t", c, keyed)
		}
		if !(Grants{}).Keyed(server, c.path) {
			t.Errorf("%v: not keyed without a limit", c)
		}
	}
}
