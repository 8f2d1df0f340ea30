package repos

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestRemovableBranch: a branch is removed whose commits are elsewhere, too; one that has commits of its own only when
// somebody insists, and one that is checked out never.
func TestRemovableBranch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	gittest.NewGit(t, filepath.Dir(dir)).Run("init", "-q", "-b", "main", dir)
	git := gittest.NewGit(t, dir)
	first := git.Commit("first", "a", "1\n")
	git.Run("branch", "merged")
	git.Run("checkout", "-q", "-b", "ahead")
	ahead := git.Commit("only here", "a", "2\n")
	for _, more := range []string{"b", "c", "d"} {
		git.Commit("more "+more, more, "1\n")
	}
	git.Run("branch", "tagged")
	git.Run("checkout", "-q", "tagged")
	git.Commit("tagged", "e", "1\n")
	git.Run("tag", "v1")
	git.Run("checkout", "-q", "main")
	git.Run("update-ref", "refs/remotes/origin/fetched", git.Run("commit-tree", "-p", first, "-m", "x", "HEAD^{tree}"))
	git.Run("branch", "fetched", "refs/remotes/origin/fetched")
	tree := filepath.Join(filepath.Dir(dir), "tree")
	git.Run("branch", "worked-on")
	git.Run("worktree", "add", "-q", tree, "worked-on")
	git.Run("checkout", "-q", "-b", "alone", first)
	alone := git.Commit("subject \x1b[2Jof mine", "z", "1\n")
	git.Run("checkout", "-q", "main")

	for _, c := range []struct {
		name, except string
		insist       bool
		says         string
	}{
		{"merged", "", false, ""}, {"fetched", "", false, ""}, {"none", "", false, ""}, {"tagged", "", false, ""},
		{"main", "", false, "is checked out in " + dir}, {"main", "", true, "is checked out in"},
		{"worked-on", "", true, "is checked out in " + tree}, {"worked-on", tree, false, ""},
		{"alone", "", false, "has commits that no other branch or tag has"}, {"alone", "", true, ""},
	} {
		b, err := RemovableBranch(t.Context(), dir, c.name, c.except, c.insist)
		if c.says != "" {
			if cove.ErrorCode(err) != cove.Conflict || !strings.Contains(err.Error(), c.says) ||
				strings.ContainsAny(err.Error(), "\x1b") {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || (b == nil) != (c.name == "none") {
			t.Errorf("%+v: %v %v", c, b, err)
		}
	}

	b, err := RemovableBranch(t.Context(), dir, "alone", "", true)
	if err != nil {
		t.Fatal(err)
	}
	git.Run("update-ref", "refs/heads/alone", first)
	if err := b.Remove(t.Context()); cove.ErrorCode(err) != cove.Conflict || git.Run("rev-parse", "alone") != first {
		t.Errorf("a branch that has moved: %v", err)
	}
	git.Run("update-ref", "refs/heads/alone", alone)
	if err := b.Remove(t.Context()); err != nil || git.Try("rev-parse", "-q", "--verify", "alone").Code == 0 {
		t.Errorf("%v", err)
	}
	git.Run("tag", "-d", "v1")
	git.Run("branch", "-D", "tagged")
	if _, err := RemovableBranch(t.Context(), dir, "ahead", "", false); err == nil ||
		!strings.Contains(err.Error(), "and 1 more") || strings.Contains(err.Error(), ahead[:7]) {
		t.Errorf("four commits: %v", err)
	}
}
