//go:build linux

package git

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// TestSandbox: a sandbox of Cove's own with the document that is made for one repository clones it, pushes its branch
// and nothing else, with no credential and nothing said to git.
func TestSandbox(t *testing.T) {
	l := newLab(t, account)
	r := l.world("repo.git")
	r.Branch("other", "main")
	d, err := policy.ForRepository("new", l.remote("repo.git"), "own", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(`cd /tmp; git clone -q URL a; cd a; git branch -r --format='%(refname:short)'
git config user.name x; git config user.email x@git.test
echo 1 > work; git add work; git commit -q -m work
git push -q origin HEAD:refs/heads/own; echo "own $?"
git push -q origin HEAD:refs/heads/main 2>&1; echo "main $?"
mkdir -p .github/workflows; echo x > .github/workflows/x.yml; git add .; git commit -q -m workflow
git push -q origin HEAD:refs/heads/own 2>&1; echo "workflow $?"
env | grep -c canary; true`, "URL", l.remote("repo.git"))
	cmd := l.command("run", "bash", "-c", script, "--policy", l.write("repo.yaml", string(text)), "--credential", "forge",
		"--timeout", "60s", "--pids", "200", "--memory", "1G")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	got := stdout.String()
	for _, want := range []string{"origin\norigin/main\nown 0\n", "pushes to own only", "main 1\n",
		".github/workflows/x.yml of commit ", "workflow 1\n0\n"} {
		if !strings.Contains(strings.Replace(got, "origin/HEAD\n", "origin\n", 1), want) {
			t.Errorf("it does not say %q:\n%s%s", want, got, stderr.String())
		}
	}
	if refs := r.Refs(); strings.Count(refs, "refs/heads/") != 4 || strings.Contains(refs, "workflow") {
		t.Errorf("%s", refs)
	}
}
