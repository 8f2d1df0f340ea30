package network

import (
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func TestExplainGit(t *testing.T) {
	d, err := policy.Parse("p.yaml",
		[]byte("rules: [{hosts: [git.example.com, other.example.com]}]\ngit: [{remote: https://git.example.com/group/repo, "+
			"push: [own, asked], update: ask}, {remote: https://git.example.com/group/read}]"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(policy.Machine{}, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target, push string
		want         policy.Action
		judged       bool // by the git section
	}{
		{"https://git.example.com/group/repo", "own", policy.Ask, true},
		{"https://git.example.com/group/repo", "main", policy.Deny, true},
		{"https://git.example.com/group/repo.git", "refs/tags/v1", policy.Deny, true},
		{"https://git.example.com/group/read", "own", policy.Deny, true},
		{"https://git.example.com/group/none", "own", policy.Deny, true},
		{"https://git.example.com/group/repo/info/refs?service=git-upload-pack", "", policy.Allow, true},
		{"https://git.example.com/group/repo.git/config", "", policy.Deny, true},
		{"https://git.example.com/group/none.git/info/refs?service=git-upload-pack", "", policy.Deny, true},
		{"https://git.example.com/group/pulls", "", policy.Allow, false},
		{"https://other.example.com/group/repo", "main", policy.Allow, false},
	} {
		r, err := toExplain(c.target, "GET", "")
		if c.push != "" {
			r, err = toPush(c.target)
		}
		if err != nil {
			t.Fatal(err)
		}
		e := explanation{}
		e.Decision, _ = p.Explain(r)
		explainGit(&e, p, r, c.target, c.push)
		if e.Decision.Action != c.want || (len(e.Layers) > 0) != c.judged || e.Decision.Reason == "" {
			t.Errorf("%s %s: %+v", c.target, c.push, e)
		}
	}
}
