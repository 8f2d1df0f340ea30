package policy

import "testing"

// TestDigest: equivalent policies have the same digest, and only those.
func TestDigest(t *testing.T) {
	digest := func(texts ...string) string {
		t.Helper()
		var layers []*Document
		for i, text := range texts {
			d, err := Parse(string(rune('a'+i))+".yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			layers = append(layers, d)
		}
		p, err := Compile(Machine{}, layers...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := p.For("somebody").Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := digest("rules:\n- hosts: a.example.com\n- {hosts: b.example.com, action: ask}\n")
	for name, texts := range map[string][]string{
		"written differently": {"# why\nmode: limited\nrules: [{hosts: [A.example.com.]}, {hosts: b.example.com, " +
			"action: ask}]"},
		"the cache allowed": {"package_cache: allow\nrules: [{hosts: a.example.com}, {hosts: b.example.com, action: ask}]"},
		"in two layers":     {"rules: [{hosts: a.example.com}]", "rules: [{hosts: b.example.com, action: ask}]"},
	} {
		if got := digest(texts...); got != base {
			t.Errorf("%s: another digest", name)
		}
	}
	for name, text := range map[string]string{
		"another action": "rules: [{hosts: a.example.com}, {hosts: b.example.com}]",
		"another port":   "rules: [{hosts: a.example.com, ports: 443}, {hosts: b.example.com, action: ask}]",
		"a path":         "rules: [{hosts: a.example.com, paths: /x}, {hosts: b.example.com, action: ask}]",
		"a method":       "rules: [{hosts: a.example.com, methods: GET}, {hosts: b.example.com, action: ask}]",
		"a depth":        "rules: [{hosts: '*.a.example.com', depth: 2}, {hosts: b.example.com, action: ask}]",
		"another mode":   "mode: open\nrules: [{hosts: a.example.com}, {hosts: b.example.com, action: ask}]",
		"git": "git: [{remote: https://a.example.com/x}]\nrules: [{hosts: a.example.com}, {hosts: " +
			"b.example.com, action: ask}]",
		"pull requests": "github: {pull_requests: allow}\nrules: [{hosts: a.example.com}, {hosts: b.example.com, " +
			"action: ask}]",
		"repositories": "github: {repositories: o/r}\nrules: [{hosts: a.example.com}, {hosts: b.example.com, " +
			"action: ask}]",
		"a denial": "rules: [{hosts: a.example.com}, {hosts: b.example.com, action: ask}, {hosts: c.example.com, " +
			"action: deny}]",
		"no cache":       "package_cache: deny\nrules: [{hosts: a.example.com}, {hosts: b.example.com, action: ask}]",
		"passed through": "rules: [{hosts: a.example.com, pass_through: true}, {hosts: b.example.com, action: ask}]",
	} {
		if digest(text) == base {
			t.Errorf("%s: the same digest", name)
		}
	}
	var none *Policy
	if a, err := none.Digest(); err != nil || a == base {
		t.Errorf("none: %q, %v", a, err)
	}
}
