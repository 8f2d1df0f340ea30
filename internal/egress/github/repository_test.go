package github

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestAccess checks the network of a repository: git's paths for each, the API of its server for pull requests, and
// the machine's credential for the owner of the machine.
func TestAccess(t *testing.T) {
	servers := NewServers(hostOf(t, "git.example.com"), hostOf(t, "192.0.2.7"))
	const (
		gitHub     = "https://github.com/o/r"
		enterprise = "https://git.example.com:8443/o/r"
		address    = "https://192.0.2.7/o/r"
		cloud      = "https://acme.ghe.com/o/r"
		other      = "https://gitlab.com/o/r"
	)
	git := func(authority string) string { return "GET " + authority + "/o/r/info/refs" }
	// all are the requests that are tried of each repository.
	all := []string{
		git("github.com"), git("git.example.com:8443"), git("192.0.2.7"), git("acme.ghe.com"), git("gitlab.com"),
		"POST github.com/o/r.git/git-receive-pack", "GET github.com/o/r/settings", "GET github.com/o/other/info/refs",
		"POST api.github.com/repos/o/r/pulls", "POST api.github.com/graphql",
		"POST api.acme.ghe.com/repos/o/r/pulls",
		"POST git.example.com:8443/api/v3/repos/o/r/pulls", "DELETE git.example.com:8443/api/v3/x",
		"POST git.example.com:8443/api/graphql",
		"POST git.example.com/api/v3/repos/o/r/pulls", "GET git.example.com:8443/api/uploads/x",
		"GET git.example.com:8443/api/v3x", "GET git.example.com:8443/login", "GET api.git.example.com/repos/o/r",
		"POST 192.0.2.7/api/v3/repos/o/r/pulls", "POST 192.0.2.7/api/graphql", "GET 192.0.2.7/login",
		"GET gitlab.com/api/v3/x",
	}
	for name, c := range map[string]struct {
		of   Repository
		want []string // allowed of all
	}{
		"github.com": {Repository{Remote: gitHub, Branch: "own"},
			[]string{git("github.com"), "POST github.com/o/r.git/git-receive-pack"}},
		"github.com with pull requests": {Repository{Remote: gitHub, Branch: "own", PullRequests: true},
			[]string{git("github.com"), "POST github.com/o/r.git/git-receive-pack",
				"POST api.github.com/repos/o/r/pulls", "POST api.github.com/graphql"}},
		"Enterprise": {Repository{Remote: enterprise, Branch: "own"}, []string{git("git.example.com:8443")}},
		"Enterprise with pull requests": {Repository{Remote: enterprise, Branch: "own", PullRequests: true},
			[]string{git("git.example.com:8443"), "POST git.example.com:8443/api/v3/repos/o/r/pulls",
				"DELETE git.example.com:8443/api/v3/x", "POST git.example.com:8443/api/graphql"}},
		"Enterprise by its address": {Repository{Remote: address, Branch: "own", PullRequests: true},
			[]string{git("192.0.2.7"), "POST 192.0.2.7/api/v3/repos/o/r/pulls", "POST 192.0.2.7/api/graphql"}},
		"Enterprise Cloud": {Repository{Remote: cloud, Branch: "own", PullRequests: true},
			[]string{git("acme.ghe.com"), "POST api.acme.ghe.com/repos/o/r/pulls"}},
		"another server": {Repository{Remote: other, Branch: "own", PullRequests: true}, []string{git("gitlab.com")}},
	} {
		for _, owned := range []bool{false, true} {
			c.of.Owned = owned
			a, err := servers.Access(c.of)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			remote := ""
			if owned {
				remote = c.of.Remote
			}
			if a.Mode != cove.NetworkLimited || a.Remote != remote || a.PullRequests != c.of.PullRequests {
				t.Errorf("%s: %+v", name, a)
			}
			p, err := policy.Compile(policy.Machine{}, a.Policy...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got []string
			for _, request := range all {
				if p.Decide(requestOf(t, request)).Action == policy.Allow {
					got = append(got, request)
				}
			}
			slices.Sort(c.want)
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: allows %q, want %q", name, got, c.want)
			}
		}
	}
	for _, remote := range []string{"", "http://127.0.0.1/o/r", "/srv/r.git", "ssh://git@github.com/o/r"} {
		a, err := servers.Access(Repository{Remote: remote, PullRequests: true, Owned: true})
		if err != nil || a.Mode != cove.NetworkNone || a.Policy != nil || a.Remote != "" || a.PullRequests {
			t.Errorf("%q: %+v, %v", remote, a, err)
		}
	}
	_, err := servers.Access(Repository{Remote: "https://github.com/o/**"})
	if cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("many repositories: %v", err)
	}
}

// requestOf returns the request of "METHOD AUTHORITY/PATH", over HTTPS.
func requestOf(t *testing.T, s string) policy.Request {
	t.Helper()
	method, target, _ := strings.Cut(s, " ")
	authority, path, _ := strings.Cut(target, "/")
	host, port, err := policy.ParseAuthority(authority, 443)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Request{Layer: policy.LayerHTTP, Host: host, Port: port, Method: method, Path: "/" + path}
}
