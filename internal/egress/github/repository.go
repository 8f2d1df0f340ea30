package github

import (
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// source names the rules of a repository in records.
const source = "repository"

// Repository is a sandbox's repository, as far as its network depends on it.
type Repository struct {
	Remote       string
	Branch       string   // the sandbox's own; empty for read-only
	Shared       []string // refs that it sees in addition, as policy.ForRepository takes them
	PullRequests bool     // it may open pull requests
	Owned        bool     // by the machine's owner, whose credential requests to Remote get
}

// Access returns the network for work on a repository: its git paths and, where the sandbox may open pull requests, the
// API of its server. A remote without HTTPS is one of the machine's, which no sandbox reaches. Errors: InvalidArgument.
func (s Servers) Access(r Repository) (egress.Network, error) {
	if !strings.HasPrefix(r.Remote, "https://") {
		return egress.Network{Mode: cove.NetworkNone}, nil
	}
	git, err := policy.ForRepository(source, r.Remote, r.Branch, r.Shared, r.PullRequests)
	if err != nil {
		return egress.Network{}, err
	}
	a := egress.Network{Mode: cove.NetworkLimited, Policy: []*policy.Document{git}, PullRequests: r.PullRequests}
	if r.Owned {
		a.Remote = r.Remote
	}
	if !r.PullRequests {
		return a, nil
	}
	remote, err := policy.ParseRemote(r.Remote)
	if err != nil {
		return egress.Network{}, err
	}
	if api, ok := s.API(remote.Host); ok {
		rules, err := api.rules(remote.Port)
		if err != nil {
			return egress.Network{}, err
		}
		a.Policy = append(a.Policy, rules)
	}
	return a, nil
}

// rules returns the document that opens the API: its whole host where it has its own, else its paths beside git's.
func (a API) rules(git uint16) (*policy.Document, error) {
	if a.Own {
		return policy.Args(source, policy.Allow, a.Host.String())
	}
	graphql := strings.TrimSuffix(a.Prefix, "/v3") + "/graphql"
	rule, err := policy.Exactly(source+" "+a.Host.Authority(a.Port(git)), a.Host, a.Port(git), "", a.Prefix+"/**", graphql)
	return &policy.Document{Source: source, Rules: []policy.Rule{rule}}, err
}
