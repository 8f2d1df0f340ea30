package github

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// ask returns the body of a GraphQL request.
func ask(text string, more ...string) string {
	q, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"query":` + string(q) + strings.Join(append([]string{""}, more...), ",") + `}`
}

// graphQLCases: WANT is "allow", "pr" (with --allow-pr only), or the rule.
var graphQLCases = []struct{ want, body string }{
	// Reading.
	{"allow", ask(`{viewer{login}}`)},
	{"allow", ask(`query{viewer{login}}`)},
	{"allow", ask(`query A{viewer{login}} query B{viewer{id}}`, `"operationName":"B"`)},
	{"allow", ask(`query($n:Int=3){viewer{repositories(first:$n){nodes{...f}}}} fragment f on Repository{name}`,
		`"variables":{"n":5}`)},
	{"allow", ask(`{viewer{login}}`, `"operationName":null`, `"variables":null`, `"extensions":null`)},
	{"allow", ask(`{viewer{login}}`, `"operationName":""`, `"extensions":{}`)},
	{"allow", ask("# mutation{mergePullRequest(input:{}){clientMutationId}}\n{viewer{login}}")},
	{"allow", ask(`{a:search(query:"mutation { mergePullRequest }",type:ISSUE){issueCount}}`)},
	{"allow", ask(`{search(query:"""mutation { mergePullRequest }""",type:ISSUE){issueCount}}`)},
	{"allow", ask(`query mergePullRequest{mutation:viewer{login}}`)},
	{"allow", ask(`{mergePullRequest}`)}, // no field of queries; GitHub says so
	{"allow", ask(`{__schema{mutationType{fields{name}}}}`)},
	{"allow", ask(`mutation{__typename}`)},
	{"tokens", ask(`{enterprise(slug:"e"){ownerInfo{samlIdentityProvider{recoveryCodes}}}}`)},
	{"tokens", ask(`{enterprise(slug:"e"){ownerInfo{samlIdentityProvider{...f}}}} fragment f on X{a:recoveryCodes}`)},
	{"tokens", ask(`{enterprise(slug:"e"){ownerInfo{... on X{recoveryCodes}}}}`)},

	// Granted by --allow-pr.
	{"pr", ask(`mutation($input:CreatePullRequestInput!){createPullRequest(input:$input){pullRequest{id url}}}`,
		`"variables":{"input":{"title":"x"}}`)},
	{"pr", ask(`mutation{createPullRequest(input:{title:"x"}){pullRequest{url}}}`)},
	{"pr", ask(`mutation{addComment(input:{subjectId:"x",body:"y"}){clientMutationId}}`)},
	{"pr", ask(`mutation{addPullRequestReviewComment(input:{body:"y"}){clientMutationId}}`)},
	{"pr", ask(`mutation{addPullRequestReviewThread(input:{body:"y"}){clientMutationId}}`)},
	{"pr", ask(`mutation{addPullRequestReviewThreadReply(input:{body:"y"}){clientMutationId}}`)},
	{"pr", ask(`mutation{a:addComment(input:{}){clientMutationId} b:addComment(input:{}){clientMutationId}}`)},
	{"pr", ask(`mutation{mergePullRequest:addComment(input:{}){clientMutationId}}`)},
	{"pr",
		ask(`mutation{...f} fragment f on Mutation{...g} fragment g on Mutation{addComment(input:{}){clientMutationId}}`)},
	{"pr", ask(`mutation{...on Mutation{...{addComment(input:{}){clientMutationId}}}}`)},
	{"pr", ask(`mutation @x{addComment(input:{})@include(if:true){clientMutationId}}`)},
	{"pr", ask(`query A{viewer{login}} mutation B{addComment(input:{}){clientMutationId}}`, `"operationName":"A"`)},

	// Reviews: by literal, by variable, by default.
	{"pr", ask(`mutation{addPullRequestReview(input:{pullRequestId:"x"}){clientMutationId}}`)},
	{"pr", ask(`mutation{addPullRequestReview(input:{event:COMMENT}){clientMutationId}}`)},
	{"pr", ask(`mutation{addPullRequestReview(input:{event:null}){clientMutationId}}`)},
	{"pr", ask(`mutation($i:I!){addPullRequestReview(input:$i){clientMutationId}}`,
		`"variables":{"i":{"event":"COMMENT"}}`)},
	{"pr", ask(`mutation($i:I!){addPullRequestReview(input:$i){clientMutationId}}`, `"variables":{"i":{}}`)},
	{"pr", ask(`mutation($e:E){addPullRequestReview(input:{event:$e}){clientMutationId}}`, `"variables":{"e":"COMMENT"}`)},
	{"pr", ask(`mutation($e:E){addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"pr", ask(`mutation($e:E=COMMENT){addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"pr", ask(`mutation($e:E=APPROVE){addPullRequestReview(input:{event:$e}){clientMutationId}}`,
		`"variables":{"e":"COMMENT"}`)},
	{"pr", ask(`mutation{addPullRequestReview(input:{body:"event:APPROVE"}){clientMutationId}}`)},
	{"pr", ask(`mutation{submitPullRequestReview(input:{event:COMMENT}){clientMutationId}}`)},
	{"approve", ask(`mutation{addPullRequestReview(input:{event:APPROVE}){clientMutationId}}`)},
	{"approve", ask(`mutation{addPullRequestReview(input:{event:REQUEST_CHANGES}){clientMutationId}}`)},
	{"approve", ask(`mutation{addPullRequestReview(input:{event:DISMISS}){clientMutationId}}`)},
	{"approve", ask(`mutation{addPullRequestReview(input:{event:Comment}){clientMutationId}}`)},
	{"approve", ask(`mutation{x:addPullRequestReview(input:{event:APPROVE}){clientMutationId}}`)},
	{"approve", ask("mutation{addPullRequestReview(input:{event:#COMMENT\nAPPROVE}){clientMutationId}}")},
	{"approve", ask("mutation{addPullRequestReview(input:{event:#COMMENT\rAPPROVE}){clientMutationId}}")},
	{"approve",
		ask(`mutation{...f} fragment f on Mutation{addPullRequestReview(input:{event:APPROVE}){clientMutationId}}`)},
	{"approve",
		ask(
			`mutation{addComment(input:{}){clientMutationId} addPullRequestReview(input:{event:APPROVE}){clientMutationId}}`)},
	{"approve", ask(`mutation($i:I!){addPullRequestReview(input:$i){clientMutationId}}`,
		`"variables":{"i":{"event":"APPROVE"}}`)},
	{"approve", ask(`mutation($i:I={event:APPROVE}){addPullRequestReview(input:$i){clientMutationId}}`)},
	{"approve", ask(`mutation($i:I={event:APPROVE}){addPullRequestReview(input:$i){clientMutationId}}`, `"variables":{}`)},
	{"approve", ask(`mutation($e:E){addPullRequestReview(input:{event:$e}){clientMutationId}}`,
		`"variables":{"e":"APPROVE"}`)},
	{"approve", ask(`mutation($e:E){addPullRequestReview(input:{event:$e}){clientMutationId}}`,
		`"variables":{"e":["COMMENT"]}`)},
	{"approve", ask(`mutation($e:E){addPullRequestReview(input:{event:$e}){clientMutationId}}`,
		`"variables":{"e":{"a":1}}`)},
	{"approve", ask(`mutation($e:E=APPROVE){addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"approve",
		ask(
			`mutation A($e:E=APPROVE){addPullRequestReview(input:{event:$e}){clientMutationId}} mutation `+
				`B($e:E=COMMENT){addPullRequestReview(input:{event:$e}){clientMutationId}}`, `"operationName":"B"`)},
	{"approve", ask(`query A{viewer{login}} mutation B{addPullRequestReview(input:{event:APPROVE}){clientMutationId}}`,
		`"operationName":"A"`)},
	{"approve", ask(`mutation{submitPullRequestReview(input:{event:APPROVE}){clientMutationId}}`)},
	{"approve", ask(`mutation{submitPullRequestReview(input:{}){clientMutationId}}`)},
	{"approve", ask(`mutation{submitPullRequestReview(input:{event:null}){clientMutationId}}`)},
	{"approve", ask(`mutation($e:E){submitPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:{event:"COMMENT"}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:{event:[COMMENT]}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:{event:COMMENT,event:APPROVE}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:{},input:{event:APPROVE}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:{},other:{event:APPROVE}){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(event:APPROVE){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview{clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:[{event:APPROVE}]){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:null){clientMutationId}}`)},
	{"form", ask(`mutation{addPullRequestReview(input:$i){clientMutationId}}`, `"variables":{"i":{}}`)},
	{"form", ask(`mutation($i:I){addPullRequestReview(input:$i){clientMutationId}}`, `"variables":{"i":[]}`)},
	{"form", ask(`mutation($i:I){addPullRequestReview(input:$i){clientMutationId}}`)},
	{"form", ask(`mutation($e:E=COMMENT,$e:E=APPROVE){addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"form", ask(`mutation($e:E="COMMENT"){addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"form",
		ask(
			`mutation{...f(e:APPROVE)} fragment f($e:E=COMMENT) on ` +
				`Mutation{addPullRequestReview(input:{event:$e}){clientMutationId}}`)},
	{"form",
		ask(`mutation{...f} fragment f($e:E=COMMENT) on Mutation{addPullRequestReview(input:{event:$e}){clientMutationId}}`)},

	// Refused by name, whatever the alias.
	{"merge", ask(`mutation{mergePullRequest(input:{pullRequestId:"x"}){clientMutationId}}`)},
	{"merge", ask(`mutation{addComment:mergePullRequest(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{...f} fragment f on Mutation{mergePullRequest(input:{}){clientMutationId}}`)},
	{"merge",
		ask(
			`mutation{...f} fragment f on Mutation{...g} fragment g on Mutation{...h} fragment h on ` +
				`Mutation{mergePullRequest(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{...on Mutation{...on Mutation{mergePullRequest(input:{}){clientMutationId}}}}`)},
	{"merge",
		ask(
			`mutation{...f ...on Mutation{...f mergePullRequest(input:{}){clientMutationId}}} fragment f on ` +
				`Mutation{__typename ...f}`)},
	{"merge", ask(`mutation{mergePullRequest(input:{})@skip(if:true){clientMutationId}}`)},
	{"merge", ask(`mutation{addComment(input:{}){clientMutationId} mergePullRequest(input:{}){clientMutationId}}`)},
	{"merge", ask(`query A{viewer{login}} mutation B{mergePullRequest(input:{}){clientMutationId}}`,
		`"operationName":"A"`)},
	{"merge", ask("mutation\t{\r\nmergePullRequest(input:{}),,,{clientMutationId}}")},
	{"merge", ask("\ufeffmutation{mergePullRequest(input:{}){clientMutationId}}")},
	{"merge", ask(`mutation{enablePullRequestAutoMerge(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{disablePullRequestAutoMerge(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{enqueuePullRequest(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{dequeuePullRequest(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{mergeBranch(input:{}){clientMutationId}}`)},
	{"merge", ask(`mutation{updatePullRequestBranch(input:{}){clientMutationId}}`)},
	{"approve", ask(`mutation{dismissPullRequestReview(input:{}){clientMutationId}}`)},
	{"approve", ask(`mutation{deletePullRequestReview(input:{}){clientMutationId}}`)},
	{"change-pull-request", ask(`mutation{closePullRequest(input:{}){clientMutationId}}`)},
	{"change-pull-request", ask(`mutation{requestReviews(input:{}){clientMutationId}}`)},
	{"files", ask(`mutation{createCommitOnBranch(input:{}){clientMutationId}}`)},
	{"refs", ask(`mutation{createRef(input:{}){clientMutationId}}`)},
	{"refs", ask(`mutation{updateRef(input:{}){clientMutationId}}`)},
	{"refs", ask(`mutation{updateRefs(input:{}){clientMutationId}}`)},
	{"refs", ask(`mutation{deleteRef(input:{}){clientMutationId}}`)},
	{"protection", ask(`mutation{createBranchProtectionRule(input:{}){clientMutationId}}`)},
	{"protection", ask(`mutation{deleteBranchProtectionRule(input:{}){clientMutationId}}`)},
	{"protection", ask(`mutation{createRepositoryRuleset(input:{}){clientMutationId}}`)},
	{"tokens", ask(`mutation{regenerateEnterpriseIdentityProviderRecoveryCodes(input:{}){clientMutationId}}`)},
	{"repository", ask(`mutation{updateRepository(input:{}){clientMutationId}}`)},
	{"repository", ask(`mutation{archiveRepository(input:{}){clientMutationId}}`)},
	{"issues", ask(`mutation{deleteIssue(input:{}){clientMutationId}}`)},
	{"issues", ask(`mutation{addLabelsToLabelable(input:{}){clientMutationId}}`)},
	{"deployments", ask(`mutation{approveDeployments(input:{}){clientMutationId}}`)},
	{"unknown", ask(`mutation{frobnicate(input:{}){clientMutationId}}`)},
	{"unknown", ask(`mutation{AddComment(input:{}){clientMutationId}}`)},
	{"unknown", ask(`mutation{__schema{types{name}}}`)},

	// Ambiguous or unparsable.
	{"form", ``},
	{"form", `null`},
	{"form", `{}`},
	{"form", `{"query":null}`},
	{"form", `{"query":""}`},
	{"form", `{"query":["{viewer{login}}"]}`},
	{"form", `[` + ask(`{viewer{login}}`) + `]`},
	{"form", `[` + ask(`{viewer{login}}`) + `,` + ask(`mutation{mergePullRequest(input:{}){clientMutationId}}`) + `]`},
	{"form", ask(`{viewer{login}}`) + ask(`mutation{mergePullRequest(input:{}){clientMutationId}}`)},
	{"form", ask(`{viewer{login}}`, `"query":"mutation{mergePullRequest(input:{}){clientMutationId}}"`)},
	{"form", ask(`{viewer{login}}`, `"\u0071uery":"mutation{mergePullRequest(input:{}){clientMutationId}}"`)},
	{"form", ask(`{viewer{login}}`, `"Query":"mutation{mergePullRequest(input:{}){clientMutationId}}"`)},
	{"form", ask(`{viewer{login}}`, `"id":"abc"`)},
	{"form", ask(`{viewer{login}}`, `"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}`)},
	{"form", `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`},
	{"form", `{"documentId":"x"}`},
	{"form", ask(`{viewer{login}}`, `"variables":"{}"`)},
	{"form", ask(`{viewer{login}}`, `"variables":[]`)},
	{"form", ask(`{viewer{login}}`, `"variables":{"a":1,"a":2}`)},
	{"form", ask(`{viewer{login}}`, `"variables":{"a":{"b":1,"b":2}}`)},
	{"form", ask(`{viewer{login}}`, `"operationName":1`)},
	{"form", ask(`{viewer{login}}`, `"operationName":"A"`)},
	{"form", ask(`query A{viewer{login}} query B{viewer{id}}`)},
	{"form", ask(`query A{viewer{login}} query B{viewer{id}}`, `"operationName":""`)},
	{"form", ask(`query A{viewer{login}} query B{viewer{id}}`, `"operationName":"C"`)},
	{"form", ask(`query A{viewer{login}} query A{viewer{id}}`, `"operationName":"A"`)},
	{"form", ask(`query A{viewer{login}} mutation A{addComment(input:{}){clientMutationId}}`, `"operationName":"A"`)},
	{"form", ask(`{viewer{login}} query A{viewer{id}}`, `"operationName":"A"`)},
	{"form", ask(`{viewer{login}} {viewer{id}}`)},
	{"form", ask(`subscription{x}`)},
	{"form", ask(`fragment f on Query{viewer{login}}`)},
	{"form", ask(`mutation{...f}`)},
	{"form",
		ask(
			`mutation{...f} fragment f on Mutation{addComment(input:{}){x}} fragment f on ` +
				`Mutation{mergePullRequest(input:{}){x}}`)},
	{"form", ask(`{`)},
	{"form", ask(`{}`)},
	{"form", ask(`mutation{}`)},
	{"form", ask(`type Query{a:Int}`)},
	{"form", ask(`extend type Query{a:Int}`)},
	{"form", ask(`{viewer{login}} }`)},
	{"form", ask("{viewer\x00{login}}")},
	{"form", ask("{viewer\u00a0{login}}")},
	{"form", ask("{viewer{l\u043egin}}")},
	{"form", ask("{a(b:\"\x01\")}")},
	{"form", ask(`{a(b:"unterminated)}`)},
	{"form", "\ufeff" + ask(`{viewer{login}}`)},
	{"form", "\xff\xfe" + ask(`{viewer{login}}`)},
	{"form", "+AHs-" + ask(`{viewer{login}}`)},
	{"form", ask(strings.Repeat(`{a`, 2000) + strings.Repeat(`}`, 2000))},
	{"form", ask(`{` + strings.Repeat(`a `, maxTokens) + `}`)},
	{"form", ask(`{a(b:` + strings.Repeat(`[`, 2000) + strings.Repeat(`]`, 2000) + `)}`)},
	{"form", ask(`{a}`, `"variables":`+strings.Repeat(`[`, 200)+strings.Repeat(`]`, 200))},
}

func TestGraphQL(t *testing.T) {
	for i, c := range graphQLCases {
		_, err := try("POST", "/graphql", "", c.body, Grants{})
		without := verdict(t, err)
		sent, err := try("POST", "/graphql", "", c.body, Grants{PullRequests: true})
		with := verdict(t, err)
		wantWithout, wantWith := c.want, c.want
		if c.want == "pr" {
			wantWithout, wantWith = "pull-request", "allow"
		}
		if without == "pull-request" && wantWith != "allow" {
			wantWithout = without // checked first
		}
		if without != wantWithout || with != wantWith {
			t.Errorf("%d: %.300s: %s, and with --allow-pr %s; want %s", i, c.body, without, with, c.want)
		}
		if err == nil {
			again, err := try("POST", "/graphql", "", string(sent), Grants{PullRequests: true})
			if err != nil || string(again) != string(sent) {
				t.Errorf("%d: %s is sent, which becomes %s, %v", i, sent, again, err)
			}
		}
	}
}

// TestGraphQLSent: the sent document means the same, without its unjudged parts.
func TestGraphQLSent(t *testing.T) {
	const text = "# hello\nquery Q($n:Int=3,$s:String=\"é\\u0041\\n\",$b:[Boolean!]!){v:viewer@include(if:$b){...f ... " +
		"on User{a(x:-1.5e3,y:{z:[E,null,true]},s:\"\"\"two\nlines\"\"\")}}} fragment f on User{login}"
	sent, err := judgeText([]byte(ask(text, `"operationName":"Q"`, `"variables":{"b":[true],"n":1e400}`)), Grants{})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Query         string
		OperationName string
		Variables     json.RawMessage
	}
	if err := json.Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	const want = `query Q ($n: Int = 3, $s: String = "éA\n", $b: [Boolean!]!) { v: viewer @include(if: $b) { ... f ... ` +
		`on User { a(x: -1.5e3, y: {z:[E,null,true]}, s: "two\nlines") } } } fragment f on User { login }`
	if strings.Join(strings.Fields(got.Query), " ") != want || got.OperationName != "Q" ||
		string(got.Variables) != `{"b":[true],"n":1e400}` {
		t.Errorf("%s\nwant\n%s\n%s %s", strings.Join(strings.Fields(got.Query), " "), want, got.OperationName, got.Variables)
	}
}

// TestMutationsAreRefused: only the few granted mutations pass, under any grant, by name or alias, at the root or in a
// fragment.
func TestMutationsAreRefused(t *testing.T) {
	for name, m := range mutations() {
		for _, text := range []string{
			`mutation{%s(input:{}){clientMutationId}}`, `mutation{addComment:%s(input:{}){clientMutationId}}`,
			`mutation{...f} fragment f on Mutation{%s(input:{}){clientMutationId}}`,
		} {
			_, err := judgeText([]byte(ask(fmt.Sprintf(text, name))), Grants{PullRequests: true})
			if allowed := err == nil; allowed != (m.effect.granted() && m.event != eventRequired) {
				t.Errorf(text+": %v", name, err)
			}
			if _, err := judgeText([]byte(ask(fmt.Sprintf(text, name))), Grants{}); err == nil {
				t.Errorf(text+" without --allow-pr", name)
			}
		}
	}
}

// judgeText judges the body of a request to GitHub's own server.
func judgeText(body []byte, g Grants) ([]byte, error) {
	judged, err := judgeGraphQL(body, policy.Host{}, g)
	return judged.Body, err
}
