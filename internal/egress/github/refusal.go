package github

// Grants are a sandbox's permissions beyond reading.
type Grants struct {
	PullRequests bool // open pull requests, comment, and comment in reviews
}

// effect is the effect of a request.
type effect string

const (
	pullRequest effect = "pull-request"
	comment     effect = "comment"
	review      effect = "review"
	judgement   effect = "approve"
	tokens      effect = "tokens"
	unknown     effect = "unknown"
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
	"secrets":             "this changes secrets or variables",
	"keys":                "this changes keys",
	tokens:                "this makes or shows a token or a secret",
	"webhooks":            "this changes webhooks",
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

// allowPR is the remedy that grants PullRequests.
const allowPR = "start the sandbox with --allow-pr"

func refuse(e effect) *Refusal {
	return &Refusal{Rule: "github: " + string(e), Reason: words[e] + "; no sandbox does that: ask a person to"}
}

// ungranted returns a refusal that --allow-pr would lift.
func ungranted(what string) *Refusal {
	return &Refusal{Rule: "github: " + string(pullRequest), Reason: what + " is not allowed to this sandbox",
		Remedy: allowPR}
}

// form returns the refusal of an ambiguous or unparsable request.
func form(why string) *Refusal {
	return &Refusal{Rule: "github: form", Reason: "the gateway sends nothing to GitHub's API that it cannot judge: " + why}
}
