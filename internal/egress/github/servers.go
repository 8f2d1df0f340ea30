package github

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Servers are the hosts that serve GitHub's API. The zero value contains GitHub's own.
type Servers struct {
	enterprise []string // names or addresses
}

// NewServers adds GitHub Enterprise servers, each by its web host ("github.example.com").
func NewServers(enterprise ...policy.Host) Servers {
	var s Servers
	for _, h := range enterprise {
		s.enterprise = append(s.enterprise, h.String())
	}
	return s
}

// ServersNamed adds GitHub Enterprise servers by the names of their web hosts. Errors: InvalidArgument.
func ServersNamed(enterprise []string) (Servers, error) {
	var all []policy.Host
	for _, name := range enterprise {
		h, err := policy.ParseHost(name)
		if err != nil {
			return Servers{}, err
		}
		all = append(all, h)
	}
	return NewServers(all...), nil
}

// At returns the API path of a host's path, as GitHub documents it ("/repos/…"), or false where the host serves no API.
func (s Servers) At(h policy.Host, path string) (apiPath string, ok bool) {
	if s.dedicated(h) {
		return path, true
	}
	if !slices.Contains(s.enterprise, h.String()) {
		return "", false
	}
	first, rest := nextSegment(path)
	switch plain, _, encoded := strings.Cut(first, "%"); {
	case !strings.EqualFold(plain, "api"):
		return "", false // git, and web pages
	case encoded: // some servers decode it to a slash
		return path, true
	}
	switch second, below := nextSegment(rest); {
	case strings.EqualFold(second, "v3"), strings.EqualFold(second, "uploads"):
		return below, true
	}
	return rest, true
}

// Of returns the host of the repositories of an API's host.
func (s Servers) Of(h policy.Host) policy.Host {
	if s.dedicated(h) {
		_, rest, _ := strings.Cut(h.Name(), ".")
		if web, err := policy.ParseHost(rest); err == nil {
			return web
		}
	}
	return h
}

// API is the location of a server's API. Its paths are below Prefix.
type API struct {
	Host   policy.Host
	Prefix string
	Own    bool // the API has its own host, at port 443
}

// API returns the location of the API for a host's repositories.
func (s Servers) API(h policy.Host) (API, bool) {
	name := h.Name()
	switch {
	case slices.Contains(s.enterprise, h.String()):
		return API{Host: h, Prefix: "/api/v3"}, true
	case name == "github.com", strings.HasSuffix(name, ".ghe.com") && !s.dedicated(h):
		api, err := policy.ParseHost("api." + name)
		return API{Host: api, Own: true}, err == nil
	}
	return API{}, false
}

// Port returns the API's port, given git's.
func (a API) Port(git uint16) uint16 {
	if a.Own {
		return 443
	}
	return git
}

// Has reports whether a host serves the API, on some path.
func (s Servers) Has(h policy.Host) bool {
	return s.dedicated(h) || slices.Contains(s.enterprise, h.String())
}

// dedicated reports whether a host serves only the API.
func (s Servers) dedicated(h policy.Host) bool {
	label, rest, _ := strings.Cut(h.Name(), ".")
	if label != "api" && label != "uploads" {
		return false
	}
	return rest == "github.com" || strings.HasSuffix(rest, ".ghe.com") || slices.Contains(s.enterprise, rest)
}

func nextSegment(path string) (first, rest string) {
	first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !more {
		return first, ""
	}
	return first, "/" + rest
}

const source = "repository" // names the rules of a repository in records

// Repository is a sandbox's repository, as far as its network depends on it.
type Repository struct {
	Remote       string
	Branch       string   // the sandbox's own; empty for read-only
	Shared       []string // refs that it sees in addition, as policy.ForRepository takes them
	PullRequests bool     // it may open pull requests
	Owned        bool     // by the machine's owner, whose credential requests to Remote get
}

// Access returns the network for work on a repository: its git paths and, where the sandbox may open pull requests, the
// API of its server, limited to the repository. A remote without HTTPS is one of the machine's, which no sandbox
// reaches. Errors: InvalidArgument.
func (s Servers) Access(r Repository) (egress.Network, error) {
	if !strings.HasPrefix(r.Remote, "https://") {
		return egress.Network{Mode: cove.NetworkNone}, nil
	}
	git, err := policy.ForRepository(source, r.Remote, r.Branch, r.Shared, r.PullRequests)
	if err != nil {
		return egress.Network{}, err
	}
	remote, err := policy.ParseRemote(r.Remote)
	if err != nil {
		return egress.Network{}, err
	}
	a := egress.Network{Mode: cove.NetworkLimited, Policy: []*policy.Document{git}, PullRequests: r.PullRequests}
	if r.Owned {
		a.Remote = r.Remote
	}
	api, ok := s.API(remote.Host)
	if !ok {
		return a, nil
	}
	if git.Repositories, err = policy.RepositoryAt(remote); err != nil || !r.PullRequests {
		return a, err
	}
	rules, err := api.rules(remote.Port)
	if err != nil {
		return egress.Network{}, err
	}
	a.Policy = append(a.Policy, rules)
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
