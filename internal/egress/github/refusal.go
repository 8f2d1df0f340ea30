package github

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Grants are a sandbox's permissions.
type Grants struct {
	PullRequests bool // open pull requests, comment, and comment in reviews
	// Repositories limit the API to those that each of them has; none is no limit.
	Repositories []policy.Repositories
}

// And returns what g and a policy grant both.
func (g Grants) And(p policy.GitHub) Grants {
	g.PullRequests = g.PullRequests && p.PullRequests
	if len(p.Repositories) > 0 {
		g.Repositories = append(slices.Clip(g.Repositories), p.Repositories)
	}
	return g
}

// limited reports whether the grants name repositories.
func (g Grants) limited() bool { return len(g.Repositories) > 0 }

// Reach reports whether the grants reach the repository OWNER/NAME of a server.
func (g Grants) Reach(server policy.Host, name string) bool {
	return !slices.ContainsFunc(g.Repositories, func(r policy.Repositories) bool { return !r.Has(server, name) })
}

// Judged tells how an allowed request is sent, and the condition that remains.
type Judged struct {
	Body  []byte   // to send instead; nil if the body does not matter
	Nodes []string // ids of GraphQL, which have to belong to the repositories of the grants
}

type effect string

const (
	pullRequest effect = "pull-request"
	comment     effect = "comment"
	review      effect = "review"
	judgement   effect = "approve"
	tokens      effect = "tokens"
	unknown     effect = "unknown"
	elsewhere   effect = "repositories" // beyond Grants.Repositories; in no table
)

// words are the reasons of refusals.
var words = map[effect]string{
	pullRequest:           "opening a pull request",
	comment:               "commenting",
	review:                "commenting in a review",
	"change-pull-request": "this changes a pull request that exists",
	"merge":               "this merges, or has it done later",
	judgement:             "this approves, blocks, dismisses or removes a review",
	"refs":                "this changes branches, tags or other refs without a push",
	"protection":          "this changes the protection of branches, tags or pushes",
	"files":               "this writes files, commits or other git objects without a push",
	"secrets":             "this lists secrets, or changes secrets or variables",
	"keys":                "this changes keys",
	tokens:                "this makes or shows a token or a secret",
	"webhooks":            "this lists or changes webhooks",
	"workflows":           "this starts, stops, changes or approves workflows",
	"runners":             "this changes runners",
	"releases":            "this changes releases or what they carry",
	"repository":          "this makes, deletes, moves or sets up a repository",
	"people":              "this changes who has access",
	"administration":      "this administers an organization, a team or an enterprise",
	"environments":        "this changes environments",
	"deployments":         "this changes deployments",
	"checks":              "this changes statuses or checks of a commit",
	"pages":               "this changes a site",
	"gists":               "this changes gists",
	"forks":               "this forks a repository",
	"issues":              "this changes issues, labels, milestones or reactions",
	"packages":            "this changes packages",
	"codespaces":          "this changes codespaces",
	"projects":            "this changes projects",
	"scanning":            "this changes alerts",
	"account":             "this changes an account",
	unknown:               "the gateway knows this as no way to read",
}

// granted reports whether Grants.PullRequests permits the effect.
func (e effect) granted() bool { return e == pullRequest || e == comment || e == review }

// Refusal is the answer to a refused request.
type Refusal struct {
	Rule   string // "github: merge"
	Reason string // one sentence
	Remedy string // how to allow it; empty if only a person can do it
}

func (r *Refusal) Error() string { return r.Reason }

const allowPR = "start the sandbox with --allow-pr"

func refuse(e effect) *Refusal {
	return &Refusal{Rule: "github: " + string(e), Reason: words[e] + "; no sandbox does that: ask a person to"}
}

// ungranted returns a refusal that --allow-pr would lift.
func ungranted(what string) *Refusal {
	return &Refusal{Rule: "github: " + string(pullRequest), Reason: what + " is not allowed to this sandbox",
		Remedy: allowPR}
}

// Outside returns the refusal of a request beyond the repositories of the grants.
func (g Grants) Outside(what string) *Refusal {
	var own []string
	for _, r := range g.Repositories {
		own = append(own, r.String())
	}
	return &Refusal{Rule: "github: " + string(elsewhere),
		Reason: what + "; this sandbox works on " + strings.Join(slices.Compact(own), ", and not ") + " with GitHub's token",
		Remedy: "name it in a policy: github: {repositories: [OWNER/NAME]}"}
}

// form returns the refusal of an ambiguous or unparsable request.
func form(why string) *Refusal {
	return &Refusal{Rule: "github: form", Reason: "the gateway sends nothing to GitHub's API that it cannot judge: " + why}
}

// quoted returns a bounded part of a document for a message.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
