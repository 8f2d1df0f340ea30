package github

import "strings"

// effect is the effect of a request.
type effect string

const (
	pullRequest    effect = "pull-request"
	comment        effect = "comment"
	review         effect = "review"
	changePull     effect = "change-pull-request"
	merge          effect = "merge"
	judgement      effect = "approve"
	refs           effect = "refs"
	protection     effect = "protection"
	files          effect = "files"
	secrets        effect = "secrets"
	keys           effect = "keys"
	tokens         effect = "tokens"
	hooks          effect = "webhooks"
	workflows      effect = "workflows"
	runners        effect = "runners"
	releases       effect = "releases"
	repository     effect = "repository"
	people         effect = "people"
	administration effect = "administration"
	environments   effect = "environments"
	deployments    effect = "deployments"
	checks         effect = "checks"
	pages          effect = "pages"
	gists          effect = "gists"
	forks          effect = "forks"
	issues         effect = "issues"
	packages       effect = "packages"
	codespaces     effect = "codespaces"
	projects       effect = "projects"
	scanning       effect = "scanning"
	account        effect = "account"
	unknown        effect = "unknown"
)

// words are the reasons of refusals.
var words = map[effect]string{
	pullRequest:    "opening a pull request",
	comment:        "commenting",
	review:         "commenting in a review",
	changePull:     "this changes a pull request that exists",
	merge:          "this merges, or has it done later",
	judgement:      "this approves, blocks, dismisses or removes a review",
	refs:           "this changes branches, tags or other refs without a push",
	protection:     "this changes the protection of branches, tags or pushes",
	files:          "this writes files, commits or other git objects without a push",
	secrets:        "this changes secrets or variables",
	keys:           "this changes keys",
	tokens:         "this makes or shows a token or a secret",
	hooks:          "this changes webhooks",
	workflows:      "this starts, stops, changes or approves workflows",
	runners:        "this changes runners",
	releases:       "this changes releases or what they carry",
	repository:     "this makes, deletes, moves or sets up a repository",
	people:         "this changes who has access",
	administration: "this administers an organization, a team or an enterprise",
	environments:   "this changes environments",
	deployments:    "this changes deployments",
	checks:         "this changes statuses or checks of a commit",
	pages:          "this changes a site",
	gists:          "this changes gists",
	forks:          "this forks a repository",
	issues:         "this changes issues, labels, milestones or reactions",
	packages:       "this changes packages",
	codespaces:     "this changes codespaces",
	projects:       "this changes projects",
	scanning:       "this changes alerts",
	account:        "this changes an account",
	unknown:        "the gateway knows this as no way to read",
}

// route is one row of the REST table.
type route struct {
	methods  string // "POST", "PUT DELETE", or "write" for all methods that do not read
	pattern  string // {name} is one segment, a final ** any number of segments, including none
	effect   effect
	event    eventRule // of the body
	segments []string  // of pattern
}

// eventRule is the condition on the "event" of a review, which publishes it.
type eventRule int

const (
	noEvent       eventRule = iota // no condition
	eventOptional                  // absent, which leaves the review pending, or COMMENT
	eventRequired                  // COMMENT
)

// granted reports whether Grants.PullRequests permits the row.
func (r *route) granted() bool {
	return r.effect == pullRequest || r.effect == comment || r.effect == review
}

// routes is the table. The first matching row counts. A request without a row is allowed if it reads, and refused as
// unknown otherwise. Rows that refuse only add a reason, except those about GET.
var routes = compile([]route{
	// Granted by --allow-pr.
	{methods: "POST", pattern: "/repos/{owner}/{repo}/pulls", effect: pullRequest},
	{methods: "POST", pattern: "/repos/{owner}/{repo}/issues/{number}/comments", effect: comment},
	{methods: "POST", pattern: "/repos/{owner}/{repo}/pulls/{number}/comments", effect: comment},
	{methods: "POST", pattern: "/repos/{owner}/{repo}/pulls/{number}/comments/{id}/replies", effect: comment},
	{methods: "POST", pattern: "/repos/{owner}/{repo}/pulls/{number}/reviews", effect: review, event: eventOptional},
	{methods: "POST", pattern: "/repos/{owner}/{repo}/pulls/{number}/reviews/{id}/events", effect: review,
		event: eventRequired},
	// GitHub redirects to these forms when a repository has moved.
	{methods: "POST", pattern: "/repositories/{id}/pulls", effect: pullRequest},
	{methods: "POST", pattern: "/repositories/{id}/issues/{number}/comments", effect: comment},
	{methods: "POST", pattern: "/repositories/{id}/pulls/{number}/comments", effect: comment},
	{methods: "POST", pattern: "/repositories/{id}/pulls/{number}/comments/{id}/replies", effect: comment},
	{methods: "POST", pattern: "/repositories/{id}/pulls/{number}/reviews", effect: review, event: eventOptional},
	{methods: "POST", pattern: "/repositories/{id}/pulls/{number}/reviews/{id}/events", effect: review,
		event: eventRequired},

	// Reads that show secrets.
	{methods: "GET HEAD write", pattern: "/copilot_internal/**", effect: tokens},
	{methods: "GET HEAD", pattern: "/repos/{owner}/{repo}/secret-scanning/**", effect: tokens},
	{methods: "GET HEAD", pattern: "/repositories/{id}/secret-scanning/**", effect: tokens},
	{methods: "GET HEAD", pattern: "/orgs/{org}/secret-scanning/**", effect: tokens},
	{methods: "GET HEAD", pattern: "/organizations/{id}/secret-scanning/**", effect: tokens},
	{methods: "GET HEAD", pattern: "/enterprises/{enterprise}/secret-scanning/**", effect: tokens},
	{methods: "GET HEAD write", pattern: "/authorizations/**", effect: tokens},

	{methods: "write", pattern: "/repos/{owner}/{repo}/pulls/{number}/merge", effect: merge},
	{methods: "write", pattern: "/repos/{owner}/{repo}/merges", effect: merge},
	{methods: "write", pattern: "/repos/{owner}/{repo}/merge-upstream", effect: merge},
	{methods: "write", pattern: "/repos/{owner}/{repo}/pulls/{number}/update-branch", effect: merge},
	{methods: "write", pattern: "/repos/{owner}/{repo}/pulls/{number}/reviews/**", effect: judgement},
	{methods: "write", pattern: "/repos/{owner}/{repo}/pulls/{number}/requested_reviewers", effect: changePull},
	{methods: "write", pattern: "/repos/{owner}/{repo}/pulls/**", effect: changePull},

	{methods: "write", pattern: "/repos/{owner}/{repo}/git/refs/**", effect: refs},
	{methods: "write", pattern: "/repos/{owner}/{repo}/git/tags", effect: refs},
	{methods: "write", pattern: "/repos/{owner}/{repo}/branches/{branch}/rename", effect: refs},
	{methods: "write", pattern: "/repos/{owner}/{repo}/branches/**", effect: protection},
	{methods: "write", pattern: "/repos/{owner}/{repo}/tags/protection/**", effect: protection},
	{methods: "write", pattern: "/repos/{owner}/{repo}/rulesets/**", effect: protection},
	{methods: "write", pattern: "/orgs/{org}/rulesets/**", effect: protection},
	{methods: "write", pattern: "/repos/{owner}/{repo}/git/**", effect: files},
	{methods: "write", pattern: "/repos/{owner}/{repo}/contents/**", effect: files},

	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/secrets/**", effect: secrets},
	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/variables/**", effect: secrets},
	{methods: "write", pattern: "/repos/{owner}/{repo}/dependabot/secrets/**", effect: secrets},
	{methods: "write", pattern: "/repos/{owner}/{repo}/codespaces/secrets/**", effect: secrets},
	{methods: "write", pattern: "/repos/{owner}/{repo}/environments/{name}/secrets/**", effect: secrets},
	{methods: "write", pattern: "/repos/{owner}/{repo}/environments/{name}/variables/**", effect: secrets},
	{methods: "write", pattern: "/repositories/{id}/environments/**", effect: secrets},
	{methods: "write", pattern: "/orgs/{org}/actions/secrets/**", effect: secrets},
	{methods: "write", pattern: "/orgs/{org}/actions/variables/**", effect: secrets},
	{methods: "write", pattern: "/orgs/{org}/dependabot/secrets/**", effect: secrets},
	{methods: "write", pattern: "/orgs/{org}/codespaces/secrets/**", effect: secrets},
	{methods: "write", pattern: "/user/codespaces/secrets/**", effect: secrets},

	{methods: "write", pattern: "/repos/{owner}/{repo}/keys/**", effect: keys},
	{methods: "write", pattern: "/user/keys/**", effect: keys},
	{methods: "write", pattern: "/user/gpg_keys/**", effect: keys},
	{methods: "write", pattern: "/user/ssh_signing_keys/**", effect: keys},

	{methods: "write", pattern: "/app/installations/{id}/access_tokens", effect: tokens},
	{methods: "write", pattern: "/app-manifests/**", effect: tokens},
	{methods: "write", pattern: "/applications/**", effect: tokens},
	{methods: "write", pattern: "/installation/token", effect: tokens},
	{methods: "write", pattern: "/credentials/**", effect: tokens},
	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/runners/registration-token", effect: tokens},
	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/runners/remove-token", effect: tokens},
	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/runners/generate-jitconfig", effect: tokens},
	{methods: "write", pattern: "/orgs/{org}/actions/runners/registration-token", effect: tokens},
	{methods: "write", pattern: "/orgs/{org}/actions/runners/remove-token", effect: tokens},
	{methods: "write", pattern: "/orgs/{org}/actions/runners/generate-jitconfig", effect: tokens},
	{methods: "write", pattern: "/orgs/{org}/personal-access-tokens/**", effect: tokens},
	{methods: "write", pattern: "/orgs/{org}/personal-access-token-requests/**", effect: tokens},

	{methods: "write", pattern: "/repos/{owner}/{repo}/hooks/**", effect: hooks},
	{methods: "write", pattern: "/orgs/{org}/hooks/**", effect: hooks},
	{methods: "write", pattern: "/app/hook/**", effect: hooks},

	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/runners/**", effect: runners},
	{methods: "write", pattern: "/orgs/{org}/actions/runners/**", effect: runners},
	{methods: "write", pattern: "/orgs/{org}/actions/runner-groups/**", effect: runners},
	{methods: "write", pattern: "/repos/{owner}/{repo}/actions/**", effect: workflows},
	{methods: "write", pattern: "/orgs/{org}/actions/**", effect: workflows},
	{methods: "write", pattern: "/repos/{owner}/{repo}/dispatches", effect: workflows},

	{methods: "write", pattern: "/repos/{owner}/{repo}/releases/**", effect: releases},

	{methods: "write", pattern: "/repos/{owner}/{repo}/environments/**", effect: environments},
	{methods: "write", pattern: "/repos/{owner}/{repo}/deployments/**", effect: deployments},
	{methods: "write", pattern: "/repos/{owner}/{repo}/statuses/**", effect: checks},
	{methods: "write", pattern: "/repos/{owner}/{repo}/check-runs/**", effect: checks},
	{methods: "write", pattern: "/repos/{owner}/{repo}/check-suites/**", effect: checks},
	{methods: "write", pattern: "/repos/{owner}/{repo}/pages/**", effect: pages},
	{methods: "write", pattern: "/repos/{owner}/{repo}/forks", effect: forks},
	{methods: "write", pattern: "/gists/**", effect: gists},

	{methods: "write", pattern: "/repos/{owner}/{repo}/issues/**", effect: issues},
	{methods: "write", pattern: "/repos/{owner}/{repo}/labels/**", effect: issues},
	{methods: "write", pattern: "/repos/{owner}/{repo}/milestones/**", effect: issues},
	{methods: "write", pattern: "/repos/{owner}/{repo}/comments/**", effect: issues},
	{methods: "write", pattern: "/repos/{owner}/{repo}/commits/**", effect: issues},

	{methods: "write", pattern: "/repos/{owner}/{repo}/code-scanning/**", effect: scanning},
	{methods: "write", pattern: "/repos/{owner}/{repo}/secret-scanning/**", effect: scanning},
	{methods: "write", pattern: "/repos/{owner}/{repo}/dependabot/**", effect: scanning},
	{methods: "write", pattern: "/repos/{owner}/{repo}/security-advisories/**", effect: scanning},
	{methods: "write", pattern: "/repos/{owner}/{repo}/vulnerability-alerts", effect: scanning},

	{methods: "write", pattern: "/repos/{owner}/{repo}/collaborators/**", effect: people},
	{methods: "write", pattern: "/repos/{owner}/{repo}/invitations/**", effect: people},
	{methods: "write", pattern: "/user/repository_invitations/**", effect: people},
	{methods: "write", pattern: "/user/memberships/**", effect: people},
	{methods: "write", pattern: "/repos/{owner}/{repo}/codespaces/**", effect: codespaces},
	{methods: "write", pattern: "/user/codespaces/**", effect: codespaces},
	{methods: "write", pattern: "/user/packages/**", effect: packages},
	{methods: "write", pattern: "/users/{name}/packages/**", effect: packages},
	{methods: "write", pattern: "/orgs/{org}/packages/**", effect: packages},
	{methods: "write", pattern: "/projects/**", effect: projects},

	{methods: "write", pattern: "/user/repos", effect: repository},
	{methods: "write", pattern: "/orgs/{org}/repos", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}", effect: repository},
	{methods: "write", pattern: "/repositories/{id}", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/transfer", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/generate", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/topics", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/autolinks/**", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/properties/**", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/import/**", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/lfs", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/interaction-limits", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/automated-security-fixes", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/private-vulnerability-reporting", effect: repository},
	{methods: "write", pattern: "/repos/{owner}/{repo}/subscription", effect: account},
	{methods: "write", pattern: "/orgs/**", effect: administration},
	{methods: "write", pattern: "/organizations/**", effect: administration},
	{methods: "write", pattern: "/teams/**", effect: administration},
	{methods: "write", pattern: "/enterprises/**", effect: administration},
	{methods: "write", pattern: "/scim/**", effect: administration},
	{methods: "write", pattern: "/admin/**", effect: administration},
	{methods: "write", pattern: "/app/**", effect: administration},
	{methods: "write", pattern: "/user/**", effect: account},
	{methods: "write", pattern: "/users/**", effect: account},
	{methods: "write", pattern: "/notifications/**", effect: account},
})

func compile(rows []route) []route {
	for i := range rows {
		rows[i].segments = strings.Split(strings.TrimPrefix(rows[i].pattern, "/"), "/")
	}
	return rows
}

// find returns the first row for a request. A row that refuses matches a path in any case and with a trailing slash, as
// some server might; a row that allows does not, and matches only names and numbers in GitHub's own form.
func find(method, path string) *route {
	exact := strings.Split(strings.TrimPrefix(path, "/"), "/")
	loose := strings.Split(strings.Trim(path, "/"), "/")
	for i := range routes {
		r := &routes[i]
		if r.hasMethod(method) && (r.granted() && r.match(exact, exactly) || !r.granted() && r.match(loose, loosely)) {
			return r
		}
	}
	return nil
}

func (r *route) hasMethod(method string) bool {
	for m := range strings.FieldsSeq(r.methods) {
		if m == method || m == "write" && method != "GET" && method != "HEAD" {
			return true
		}
	}
	return false
}

func (r *route) match(path []string, same func(pattern, segment string) bool) bool {
	for i, s := range r.segments {
		if s == "**" {
			return true
		}
		if i >= len(path) || !same(s, path[i]) {
			return false
		}
	}
	return len(path) == len(r.segments)
}

func loosely(pattern, segment string) bool {
	return pattern[0] == '{' || strings.EqualFold(pattern, segment)
}

func exactly(pattern, segment string) bool {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
	switch {
	case pattern[0] != '{':
		return pattern == segment
	case segment == "" || segment == "." || segment == "..":
		return false
	case pattern == "{number}" || pattern == "{id}":
		return strings.Trim(segment, digits) == ""
	}
	return strings.Trim(segment, letters+digits) == ""
}

// judgeBody judges the body of a granted write.
func judgeBody(data []byte, r *route) ([]byte, error) {
	body, err := readObject(data)
	if err != nil {
		return nil, form(err.Error())
	}
	event, has := body["event"]
	if err := r.event.judge(event, has); err != nil {
		return nil, err
	}
	return writeJSON(body)
}

// judge checks the event of a review.
func (e eventRule) judge(event any, has bool) error {
	switch {
	case e == noEvent, event == "COMMENT", e == eventOptional && (!has || event == nil):
		return nil
	}
	return refuse(judgement)
}
