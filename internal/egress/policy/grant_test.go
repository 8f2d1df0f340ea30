package policy

import (
	"slices"
	"testing"
)

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
		if got := p.For("x").GitHub().PullRequests; got != c.want {
			t.Errorf("%q: %t", c.layers, got)
		}
	}
	if (*Policy)(nil).GitHub().PullRequests {
		t.Error("no policy at all grants it")
	}
	for _, text := range []string{"github: true", "github: {pull_requests: yes}", "github: {pull_requests: true}",
		"github: {pull_requests: }", "github: {issues: allow}", "github: [pull_requests]"} {
		if _, err := Parse("p.yaml", []byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestRepositories: the repositories of all documents count, and no document takes the limit away.
func TestRepositories(t *testing.T) {
	const own, more = "github: {repositories: O/r}\n", "github: {repositories: [other/*, ghe.example.com/o/r]}\n"
	for _, c := range []struct {
		layers  []string
		has     []string
		limited bool
	}{
		{[]string{"mode: open\n"}, nil, false},
		{[]string{"github: {}\n"}, nil, false},
		{[]string{own}, []string{"github.com o/R"}, true},
		{[]string{own, more}, []string{"github.com o/R", "github.com Other/x", "ghe.example.com o/r"}, true},
		{[]string{own, "mode: limited\nmerge: replace\n"}, []string{"github.com o/R"}, true},
		{[]string{"github: {repositories: '*/*'}\n"}, []string{"github.com o/R", "github.com Other/x", "github.com a/b"},
			true},
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
			again, err := Parse("p.yaml", written)
			if err != nil || !slices.Equal(again.Repositories, d.Repositories) {
				t.Errorf("%q is written as %q: %v", text, written, err)
			}
			layers = append(layers, d)
		}
		p, err := Compile(Machine{}, layers...)
		if err != nil {
			t.Fatal(err)
		}
		got := p.For("x").GitHub().Repositories
		if len(got) > 0 != c.limited {
			t.Errorf("%q: %q", c.layers, got)
		}
		for _, one := range [][2]string{{"github.com", "o/R"}, {"github.com", "Other/x"}, {"github.com", "a/b"},
			{"github.com", "o"}, {"github.com", "o/r/x"}, {"github.com", ""},
			{"ghe.example.com", "o/r"}, {"ghe.example.com", "other/x"}} {
			host, err := ParseHost(one[0])
			if err != nil {
				t.Fatal(err)
			}
			if has := got.Has(host, one[1]); has != slices.Contains(c.has, one[0]+" "+one[1]) {
				t.Errorf("%q has %q: %t", c.layers, one, has)
			}
		}
	}
	for _, text := range []string{"[]", "o", "/r", "o/", "o/r/", "o/../r", "'*/r'", "o/r?x", "a/b/c/d",
		"{}", "http://o/r"} {
		if _, err := Parse("p.yaml", []byte("github: {repositories: "+text+"}")); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
