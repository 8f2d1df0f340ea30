package github

import (
	"fmt"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func hostOf(t *testing.T, s string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestServers(t *testing.T) {
	host := func(s string) policy.Host { return hostOf(t, s) }
	s := NewServers(host("github.example.com"), host("192.0.2.7"))
	for _, c := range []struct{ host, path, want string }{
		{"api.github.com", "/repos/o/r", "/repos/o/r"},
		{"API.GitHub.com.", "/", "/"},
		{"uploads.github.com", "/repos/o/r/releases/1/assets", "/repos/o/r/releases/1/assets"},
		{"api.corp.ghe.com", "/graphql", "/graphql"},
		{"uploads.corp.ghe.com", "/x", "/x"},
		{"github.example.com", "/api/v3/repos/o/r", "/repos/o/r"},
		{"github.example.com", "/api/v3", ""},
		{"github.example.com", "/API/V3/repos/o/r", "/repos/o/r"},
		{"github.example.com", "/api/graphql", "/graphql"},
		{"github.example.com", "/api/v3/graphql", "/graphql"},
		{"github.example.com", "/api/uploads/repos/o/r", "/repos/o/r"},
		{"github.example.com", "/api/v4/repos", "/v4/repos"},
		{"github.example.com", "/api", ""},
		{"github.example.com", "/api%2Fv3/repos/o/r", "/api%2Fv3/repos/o/r"},
		{"github.example.com", "/api/v3%2Frepos/o/r", "/v3%2Frepos/o/r"},
		{"192.0.2.7", "/api/v3/user", "/user"},
		{"api.github.example.com", "/repos/o/r", "/repos/o/r"},
		{"uploads.github.example.com", "/repos/o/r", "/repos/o/r"},
		{"github.example.com", "/o/r.git/git-receive-pack", "-"},
		{"github.example.com", "/apis/v3", "-"},
		{"github.com", "/api/v3/repos", "-"},
		{"github.com", "/o/r.git/info/refs", "-"},
		{"api.github.com.example.com", "/repos", "-"},
		{"xapi.github.com", "/repos", "-"},
		{"raw.githubusercontent.com", "/o/r", "-"},
		{"192.0.2.8", "/api/v3/user", "-"},
		{"corp.ghe.com", "/o/r.git/info/refs", "-"},
	} {
		got, ok := s.At(host(c.host), c.path)
		if !ok {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s %s is %q, want %q", c.host, c.path, got, c.want)
		}
		if ok && !s.Has(host(c.host)) {
			t.Errorf("%s is not known", c.host)
		}
	}
	if _, ok := NewServers().At(host("github.example.com"), "/api/v3/user"); ok {
		t.Error("a server that is not configured")
	}
}

// TestAPI checks the location of the API for a host's repositories.
func TestAPI(t *testing.T) {
	s := NewServers(hostOf(t, "git.example.com"))
	for host, want := range map[string]string{
		"github.com": "api.github.com 443 ", "acme.ghe.com": "api.acme.ghe.com 443 ",
		"git.example.com": "git.example.com 8443 /api/v3",
		"api.github.com":  "none", "api.acme.ghe.com": "none", "gitlab.com": "none", "github.com.example": "none",
		"other.example.com": "none",
	} {
		got := "none"
		if api, ok := s.API(hostOf(t, host)); ok {
			got = fmt.Sprintf("%s %d %s", api.Host, api.Port(8443), api.Prefix)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
