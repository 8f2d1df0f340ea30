//go:build linux

package git

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestDeleteBranch: a sandbox goes with its branch in the user's repository, unless that would lose commits or is
// checked out; then nothing goes.
func TestDeleteBranch(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	dir := l.path("project")
	gittest.NewGit(t, l.dir).Run("init", "-q", "-b", "main", dir)
	mine := gittest.NewGit(t, dir)
	mine.Commit("first", "a", "1\n")
	has := func(branch string) bool {
		return mine.Try("rev-parse", "-q", "--verify", "refs/heads/"+branch).Code == 0
	}
	destroy := func(more ...string) string {
		out, err := l.command(append([]string{"destroy", "--yes", "box"}, more...)...).CombinedOutput()
		if err != nil {
			return "failed: " + string(out)
		}
		return string(out)
	}

	l.cove("new", dir, "own", "--worktree", "--name", "box", "--no-attach")
	if out, code := l.in("box", "git config --global user.name A && git config --global user.email a@x.example && "+
		"echo 1 >b && git add b && git commit -qm 'Only here'"); code != 0 {
		t.Fatal(out)
	}
	out := destroy("--delete-branch")
	if !strings.HasPrefix(out, "failed: ") || !strings.Contains(out, "Only here") ||
		!strings.Contains(out, "--delete-branch=force") || !has("own") || strings.TrimSpace(l.cove("list", "-q")) != "box" {
		t.Errorf("with a commit that is nowhere else: %s", out)
	}
	mine.Run("branch", "kept", "own")
	if out := destroy("--delete-branch"); strings.Contains(out, "failed") || has("own") || !has("kept") ||
		!strings.Contains(out, "the branch own is removed from "+dir) {
		t.Errorf("with a commit that another branch has: %s", out)
	}

	l.cove("new", dir, "own", "--worktree", "--name", "box", "--no-attach")
	if out, code := l.in("box", "echo 1 >c && git add c && git -c user.name=A -c user.email=a@x.example "+
		"commit -qm 'Only here'"); code != 0 {
		t.Fatal(out)
	}
	if out := destroy("--delete-branch=force"); strings.Contains(out, "failed") || has("own") {
		t.Errorf("by force: %s", out)
	}

	l.cove("new", dir, "main", "--name", "box", "--no-attach") // a clone, whose branch is the one of the directory
	if out := destroy("--delete-branch=force"); !strings.Contains(out, "is checked out in "+dir) || !has("main") {
		t.Errorf("the branch that is checked out: %s", out)
	}
	if out := destroy(); strings.Contains(out, "failed") || !has("main") {
		t.Errorf("without the branch: %s", out)
	}
}
