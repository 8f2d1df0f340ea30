package network

import (
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

// toPush is the request that pushes to a repository at a URL.
func toPush(target string) (policy.Request, error) {
	r, err := toExplain(target, "POST", "")
	if err == nil && r.Path == "" {
		return r, cove.Errorf(cove.InvalidArgument, "%s is no repository", target).
			WithHint("it is https://HOST/OWNER/REPOSITORY")
	}
	r.Path = strings.TrimSuffix(r.Path, "/") + "/" + string(smart.Push)
	return r, err
}

// explainGit adds what the git section makes of a request that the rules allow: one of git's, or with ref a push to it.
func explainGit(e *explanation, p *policy.Policy, r policy.Request, target, ref string) {
	if r.Method == "" || e.Decision.Action == policy.Deny || !p.GitHost(r.Host) {
		if ref != "" && !p.GitHost(r.Host) {
			e.Note = "the git section does not list this host, so a push is judged like any other HTTP request"
		}
		return
	}
	_, query, asks := strings.Cut(target, "?")
	asked := smart.Recognise(r.Method, r.Path, query, asks)
	repo := asked.Repo
	if asked.Kind == smart.Other {
		repo = r.Path
	}
	rights := p.Git(r.Host, r.Port, repo)
	v := policy.Verdict{Rule: "default", Reason: "the git section has no such repository"}
	switch {
	case rights == nil && (asked.Kind == smart.Other || asked.Kind == smart.Files && !strings.HasSuffix(repo, ".git")):
		return // a page
	case rights == nil:
	case asked.Kind == smart.Odd || asked.Kind == smart.Files:
		v = policy.Verdict{
			Rule:   "gateway: git",
			Reason: "git's clients do not ask for this, and files of repositories are not given out by name",
		}
	case ref != "":
		v = explainPush(rights, ref)
		e.Note = "what is in a push is judged, too: its files, secrets, and whether it leaves commits behind"
	default:
		v = policy.Verdict{Action: policy.Allow, Rule: rights.ID, Reason: rights.Summary()}
	}
	if v.Action < e.Decision.Action {
		e.Decision = v
	}
	e.Layers = append(e.Layers, explained{"git", v})
}

// explainPush judges a push that makes ref, or updates it in order.
func explainPush(rights *git.Policy, ref string) policy.Verdict {
	if !strings.HasPrefix(ref, "refs/") && ref != "HEAD" {
		ref = "refs/heads/" + ref
	}
	u := git.Update{Ref: ref, Old: strings.Repeat("0", 40), New: strings.Repeat("1", 40)}
	ruling := rights.Admit(git.Push{Updates: []git.Update{u}}).Updates[0]
	v := policy.Verdict{Rule: ruling.Rule, Reason: ruling.Reason}
	switch ruling.Action {
	case git.Allow:
		v.Action, v.Reason = policy.Allow, rights.Summary()
	case git.Ask:
		v.Action = policy.Ask
	}
	return v
}
