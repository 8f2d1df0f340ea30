//go:build linux

package git

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestPruneDelivered: prune removes a sandbox whose work was pushed, from inside or from the host, or applied, and none
// with work of another branch.
func TestPruneDelivered(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	l.write("cove.yaml", fmt.Sprintf("gateway: {extra_cas: [%s]}\n", l.server.CA))
	for name, form := range map[string]string{"clone": "--worktree=false", "worktree": "--worktree"} {
		repo := l.server.Create(name + ".git")
		l.cove("new", l.remote(name+".git"), "own-"+name, "--name", name, "--no-attach", form)
		inside := func(script string) {
			t.Helper()
			if out, code := l.in(name, "set -e\n"+fixed+script); code != 0 {
				t.Fatalf("%s: %s", form, out)
			}
		}
		held := func(what, want string) {
			t.Helper()
			for line := range strings.Lines(l.cove("prune", "--unused", "1ms", "--dry-run")) {
				if f := strings.Fields(line); f[0] == name {
					if got := strings.Join(f[len(f)-len(strings.Fields(want)):], " "); got != want {
						t.Errorf("%s, %s: prune shows %q, not %q", form, what, line, want)
					}
				}
			}
		}
		held("at its beginning", "would be")
		inside("echo 1 >file; git add file; git commit -qm one")
		held("committed", "1 commit no")
		inside("git push -q origin HEAD")
		held("pushed from inside", "would be")
		if name == "clone" { // a worktree has one branch
			inside("git checkout -q -b side; git commit -q --allow-empty -m two; git checkout -q -; echo 2 >file; echo 3 >new")
			held("on another branch, and not committed", "1 commit, 2 changed files no")
			inside("rm new; git checkout -q file; git merge -q side")
		}
		inside("git commit -q --allow-empty -m three")
		l.cove("push", name, "--yes")
		held("pushed from the host", "would be")
		inside("echo 2 >file; echo 3 >new")
		held("not committed", "2 changed files no")
		mine := gittest.NewGit(t, t.TempDir())
		mine.Run("clone", "-q", "-b", "own-"+name, repo.Dir, "mine")
		mine.In("mine").Run("reset", "-q", "--hard", "origin/main")
		l.cove("apply", name, "--to", mine.In("mine").Dir)
		held("applied", "would be")
	}
	l.cove("prune", "--unused", "1ms", "--yes")
	if left := l.cove("list", "-q"); left != "" {
		t.Errorf("left is %s", left)
	}
}
