package credential

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestForRemote: git's requests for one repository get the machine's own credential; if there is none, requests go
// without.
func TestForRemote(t *testing.T) {
	t.Setenv("GH_TOKEN", "ghp_a-token-of-this-machine")
	t.Setenv("HOME", t.TempDir())
	host, err := policy.ParseHost("api.github.com")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ForRemote("https://github.com/o/r", &API{Host: host, Port: 443})
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	s, err := NewSet(NewValues(clocktest.NewManual(time.Unix(1, 0))), all...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, url string
		set         bool
	}{
		{"GET", "https://github.com/o/r.git/info/refs?service=git-upload-pack", true},
		{"POST", "https://github.com/o/r/git-receive-pack", true},
		{"POST", "https://api.github.com/repos/o/r/pulls", true},
		{"GET", "https://github.com/o/other.git/info/refs", false},
		{"GET", "https://github.com/o/r.git/info/refs2", false},
		{"GET", "https://example.com/o/r.git/info/refs", false},
	} {
		r, h := request(t, c.method, c.url)
		names, err := s.Apply(r, h, nil)
		if err != nil || (len(names) > 0) != c.set || (h.Header.Get("Authorization") != "") != c.set {
			t.Errorf("%s %s: set are %v, %v", c.method, c.url, names, err)
		}
	}

	none, err := ForRemote("https://git.example.test/o/r", nil)
	if err != nil || len(none) != 1 {
		t.Fatalf("%v, %v", none, err)
	}
	if s, err = NewSet(NewValues(clocktest.NewManual(time.Unix(1, 0))), none...); err != nil {
		t.Fatal(err)
	}
	r, h := request(t, "GET", "https://git.example.test/o/r/info/refs")
	h.Header.Set("Authorization", "Basic Zm9v")
	if names, err := s.Apply(r, h, nil); err != nil || len(names) > 0 || h.Header.Get("Authorization") == "" {
		t.Errorf("without one: %v, %v, %q", names, err, h.Header.Get("Authorization"))
	}
	if _, err := ForRemote("ssh://git@github.com/o/r", nil); err == nil {
		t.Error("a remote that is not https has a credential")
	}
}

// TestNamedBeforeTheMachines: a credential that was chosen by name is set where the machine's own credential for a
// repository would be, and the machine's own everywhere else.
func TestNamedBeforeTheMachines(t *testing.T) {
	t.Setenv("GH_TOKEN", "ghp_a-token-of-this-machine")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("COVE_TEST_SERVICE", canary)
	host, err := policy.ParseHost("api.github.com")
	if err != nil {
		t.Fatal(err)
	}
	const (
		git  = "GET https://github.com/o/r.git/info/refs?service=git-upload-pack"
		api  = "POST https://api.github.com/repos/o/r/pulls"
		page = "GET https://github.com/api/o"
	)
	for name, c := range map[string]struct {
		to   string
		want map[string]string // credentials by request
	}{
		"the whole host": {"{hosts: github.com, form: basic, user: u}",
			map[string]string{git: "[named]", page: "[named]", api: "[repository-api]"}},
		"other paths of the host": {"{hosts: github.com, paths: /api/**, form: bearer}",
			map[string]string{git: "[repository]", page: "[named]", api: "[repository-api]"}},
		"another header": {"{hosts: github.com, form: header, header: X-Token}",
			map[string]string{git: "[named repository]", page: "[named]", api: "[repository-api]"}},
		"another host": {"{hosts: api.github.com, form: bearer}",
			map[string]string{git: "[repository]", page: "[]", api: "[named]"}},
	} {
		named := parse(t,
			"credentials: [{name: named, source: 'env:COVE_TEST_SERVICE', variables: GH_TOKEN, to: ["+c.to+"]}]")
		own, err := ForRemote("https://github.com/o/r", &API{Host: host, Port: 443})
		if err != nil {
			t.Fatal(err)
		}
		for _, all := range [][]Credential{slices.Concat(named, own), slices.Concat(own, named)} {
			s, err := NewSet(NewValues(clocktest.NewManual(time.Unix(1, 0))), all...)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for asked, want := range c.want {
				method, url, _ := strings.Cut(asked, " ")
				r, h := request(t, method, url)
				names, err := s.Apply(r, h, nil)
				if slices.Sort(names); err != nil || fmt.Sprint(names) != want {
					t.Errorf("%s: %s: set are %v, %v, want %s", name, asked, names, err, want)
				}
			}
			if p := s.Placeholders(); p["GH_TOKEN"] == "" || p["GITHUB_TOKEN"] == "" {
				t.Errorf("%s: placeholders %v", name, p)
			}
		}
	}
}

// TestTokenWithoutGH: a token in a variable counts where gh is not installed, for github.com alone.
func TestTokenWithoutGH(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("GITHUB_TOKEN", "ghp_a-token-of-this-machine")
	gh := Source{kind: fromGH}
	if _, value, err := gh.read(t.Context(), "github.com"); err != nil || value != "ghp_a-token-of-this-machine" {
		t.Errorf("github.com: %q, %v", value, err)
	}
	if _, value, err := gh.read(t.Context(), "github.example.com"); err == nil {
		t.Errorf("another server: %q", value)
	}
}
