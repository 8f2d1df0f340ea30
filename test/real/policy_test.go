package real

import (
	"os"
	"strings"
	"testing"
)

// TestPolicy: what a sandbox may reach is shown, changed while it runs, and taken back; a denial that stands in the way
// of what is allowed is said.
func TestPolicy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a mount namespace without the server of this machine")
	}
	t.Parallel()
	m := asRoot(t)
	m.cove("new", "--empty", "--name", "otter", "--no-attach", "--allow", "a.example")
	show := func(want ...string) {
		t.Helper()
		got := m.cove("policy", "show", "otter")
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in\n%s", w, got)
			}
		}
	}
	explain := func(host, want string) {
		t.Helper()
		got := m.cove("policy", "explain", "https://"+host+"/", "--sandbox", "otter")
		if !strings.HasPrefix(got, want+" ") {
			t.Errorf("%s: %s", host, got)
		}
	}
	show("mode  limited", "# --allow\nrules:\n  - hosts: [a.example]")
	explain("a.example", "allow")
	explain("b.example", "deny")
	m.cove("policy", "deny", "otter", "a.example")
	m.says(1, []string{"policy", "allow", "otter", "a.example", "b.example"}, "a.example stays denied",
		"policy reset otter")
	show("changed  deny a.example, allow a.example, allow b.example",
		"# cove policy deny\nrules:\n  - hosts: [a.example]\n    action: deny\n",
		"# cove policy allow\nrules:\n  - hosts: [a.example]\n  - hosts: [b.example]\n")
	explain("a.example", "deny")
	explain("b.example", "allow")
	m.cove("policy", "mode", "otter", "open")
	show("mode     open")
	explain("c.example", "allow")
	explain("a.example", "deny")
	m.cove("policy", "mode", "otter", "none")
	explain("b.example", "deny")
	m.cove("policy", "reset", "otter")
	show("mode  limited")
	explain("a.example", "allow")
	explain("b.example", "deny")

	m.cove("new", "--empty", "--name", "lone", "--no-attach")
	m.says(122, []string{"policy", "allow", "lone", "a.example"}, "has no network", "cove policy mode lone limited")
	m.says(122, []string{"policy", "mode", "lone", "limited"}, "was started without a network", "cove stop lone")
	m.cove("stop", "lone")
	m.cove("policy", "mode", "lone", "limited")
	m.cove("start", "lone")
	m.cove("policy", "allow", "lone", "a.example")
}
