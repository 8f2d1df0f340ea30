package policy

import "testing"

// TestPullRequests: grants for GitHub's API merge as rules do: the default is no, a denial wins, and replace drops
// earlier grants.
func TestPullRequests(t *testing.T) {
	const allow, deny = "github: {pull_requests: allow}\n", "github: {pull_requests: deny}\n"
	const replace = "mode: limited\nmerge: replace\n"
	for _, c := range []struct {
		layers []string
		want   bool
	}{
		{nil, false},
		{[]string{"mode: open\n"}, false},
		{[]string{"github: {}\n"}, false},
		{[]string{allow}, true},
		{[]string{deny}, false},
		{[]string{allow, "rules: []\n"}, true},
		{[]string{allow, deny}, false},
		{[]string{deny, allow}, false},
		{[]string{allow, replace}, false},
		{[]string{replace + allow}, true},
		{[]string{deny, replace + allow}, false},
		{[]string{allow, replace, allow}, true},
	} {
		var layers []*Document
		for _, text := range c.layers {
			d, err := Parse("p.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			written, err := d.YAML()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Parse("p.yaml", written); err != nil || again.PullRequests != d.PullRequests {
				t.Errorf("%q is written as %q: %v", text, written, err)
			}
			layers = append(layers, d)
		}
		p, err := Compile(Machine{}, layers...)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.For("x").PullRequests(); got != c.want {
			t.Errorf("%q: %t", c.layers, got)
		}
	}
	if (*Policy)(nil).PullRequests() {
		t.Error("no policy at all grants it")
	}
	for _, text := range []string{"github: true", "github: {pull_requests: yes}", "github: {pull_requests: true}",
		"github: {pull_requests: }", "github: {issues: allow}", "github: [pull_requests]"} {
		if _, err := Parse("p.yaml", []byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
