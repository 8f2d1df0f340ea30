package credential

import (
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
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
	s, err := NewSet(NewValues(clock.NewManual(time.Unix(1, 0))), all...)
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
		names, err := s.Apply(r, h)
		if err != nil || (len(names) > 0) != c.set || (h.Header.Get("Authorization") != "") != c.set {
			t.Errorf("%s %s: set are %v, %v", c.method, c.url, names, err)
		}
	}

	none, err := ForRemote("https://git.example.test/o/r", nil)
	if err != nil || len(none) != 1 {
		t.Fatalf("%v, %v", none, err)
	}
	if s, err = NewSet(NewValues(clock.NewManual(time.Unix(1, 0))), none...); err != nil {
		t.Fatal(err)
	}
	r, h := request(t, "GET", "https://git.example.test/o/r/info/refs")
	h.Header.Set("Authorization", "Basic Zm9v")
	if names, err := s.Apply(r, h); err != nil || len(names) > 0 || h.Header.Get("Authorization") == "" {
		t.Errorf("without one: %v, %v, %q", names, err, h.Header.Get("Authorization"))
	}
	if !s.Overlaps(none[0]) || s.Overlaps(all[0]) {
		t.Error("which overlap is wrong")
	}
	if _, err := ForRemote("ssh://git@github.com/o/r", nil); err == nil {
		t.Error("a remote that is not https has a credential")
	}
}
