package repos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestWorktreeOfRemote: the checkout is a worktree of a repository beside it. Its objects are found at its own place,
// and one level below any other root.
func TestWorktreeOfRemote(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	w := create(t, s, spec("calm-crane", workspace.Repository{Source: repo.URL, Worktree: true}))
	if w.Hidden != filepath.Join(s.directory(w.ID), "repository.git") || w.Worktree != "checkout" || w.Borrowed == "" {
		t.Fatalf("%+v", w)
	}
	git := server.Client().In(w.Directory)
	if git.Run("status", "--porcelain") != "" || git.Run("symbolic-ref", "HEAD") != "refs/heads/cove/calm-crane" {
		t.Errorf("%s", git.Run("status"))
	}
	git.Run("fsck")
	git.Commit("mine", "mine", "x")
	git.Run("push", "-q")
	if got := repo.Refs(); !strings.Contains(got, "refs/heads/cove/calm-crane") {
		t.Errorf("the remote has %s", got)
	}
	if got := git.Run("worktree", "list", "--porcelain"); !strings.Contains(got, "worktree "+w.Directory+"\n") ||
		strings.Contains(got, "prunable") {
		t.Errorf("worktrees %s", got)
	}
	// The view of a sandbox with the repository at /repository.git and the objects at /run/cove/objects.
	root := t.TempDir()
	for name, target := range map[string]string{"repository.git": w.Hidden, "run/cove/objects": w.Borrowed} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	gittest.NewGit(t, root).Run("--git-dir="+filepath.Join(root, "repository.git/worktrees/checkout"),
		"--work-tree="+w.Directory, "log", "-1")
	sparse := create(t, s,
		spec("sparse", workspace.Repository{Source: repo.URL, Worktree: true, Sparse: []string{"none"}}))
	if got := names(t, sparse.Directory); got != ".git README" {
		t.Errorf("it has %s", got)
	}
	for _, id := range []cove.SandboxID{w.ID, sparse.ID} {
		if err := s.Remove(t.Context(), id, false); err != nil {
			t.Error(err)
		}
	}
}

// hostile returns a person's repository that would run a program on every occasion.
func hostile(t *testing.T) (git gittest.Git, ran func() bool) {
	t.Helper()
	top := gittest.NewGit(t, t.TempDir())
	top.Run("init", "-q", "-b", "main", "mine")
	mine := top.In("mine")
	mine.Write(".gitattributes", "* filter=x diff=x\n")
	mine.Commit("first", "f", "1\n")
	mine.Run("branch", "there")
	canary := filepath.Join(top.Dir, "canary")
	script := filepath.Join(top.Dir, "evil")
	hooks := filepath.Join(mine.Dir, ".git/hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{script}, hookPaths(hooks)...) {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho $0 >>"+canary+"\ncat\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"core.fsmonitor", "core.alternateRefsCommand", "filter.x.smudge", "filter.x.clean",
		"diff.x.textconv", "core.sshCommand"} {
		mine.Run("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "config", key, script)
	}
	os.Remove(canary)
	mine.Run("status") // the trap works
	if !exists(canary) {
		t.Fatal("an ordinary git runs nothing")
	}
	os.Remove(canary)
	return gittest.NewGit(t, mine.Dir, "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.hooksPath",
			"GIT_CONFIG_VALUE_0=/dev/null", "GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false"),
		func() bool { return exists(canary) }
}

func hookPaths(dir string) []string {
	var all []string
	for _, name := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc",
		"post-merge", "fsmonitor-watchman"} {
		all = append(all, filepath.Join(dir, name))
	}
	return all
}

// TestWorktreeOfDirectory: a person's own repository gets a worktree, runs none of its programs, and has one new branch
// in the end.
func TestWorktreeOfDirectory(t *testing.T) {
	mine, ran := hostile(t)
	s := newStore(t, nil)
	w := create(t, s, ownSpec("calm-crane", workspace.Repository{Source: mine.Dir, Worktree: true}))
	if ran() {
		t.Error("a program of the repository ran")
	}
	if w.Hidden != filepath.Join(mine.Dir, ".git") || w.Worktree != "checkout" || w.Borrowed != "" ||
		w.Branch != "cove/calm-crane" {
		t.Errorf("%+v", w)
	}
	if got := read(t, w.Directory, "f"); got != "1\n" {
		t.Errorf("the file is %q", got)
	}
	if got := mine.Run("worktree", "list", "--porcelain"); !strings.Contains(got, "worktree "+w.Directory+"\n") ||
		!strings.Contains(got, "branch refs/heads/cove/calm-crane") {
		t.Errorf("worktrees %s", got)
	}
	second := create(t, s,
		ownSpec("second", workspace.Repository{Source: mine.Dir, Worktree: true, Branch: "there"}))
	if second.Worktree == w.Worktree || second.Branch != "there" {
		t.Errorf("%+v", second)
	}
	for name, r := range map[string]workspace.Repository{
		"a branch that is checked out": {Branch: "main"},
		"another sandbox's":            {Branch: "there"},
		"one that begins elsewhere":    {Branch: "main", From: "cove/calm-crane"},
	} {
		r.Source, r.Worktree = mine.Dir, true
		if _, err := s.Create(t.Context(), ownSpec("x", r), nil); cove.ErrorCode(err) != cove.Conflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	before := mine.Run("for-each-ref") + mine.Run("worktree", "list")
	if _, err := s.Create(t.Context(), ownSpec("x", workspace.Repository{
		Source: mine.Dir, Worktree: true, From: "missing",
	}), nil); cove.ErrorCode(err) != cove.NotFound {
		t.Error(err)
	}
	// A late failure: its files cannot be written.
	late := ownSpec("late", workspace.Repository{Source: mine.Dir, Worktree: true, Sparse: []string{"a"}})
	if err := os.WriteFile(filepath.Join(mine.Dir, ".git/config.worktree"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(s.workspaces, coming+string(late.ID))
	_, err := s.Create(t.Context(), late, func(workspace.Step) {
		os.MkdirAll(filepath.Join(blocked, checkoutDir, ".git"), 0o755) // git needs a file there
		os.WriteFile(filepath.Join(blocked, checkoutDir, "in-the-way"), nil, 0o644)
	})
	if err == nil {
		t.Error("it was made over what was there")
	}
	if after := mine.Run("for-each-ref") + mine.Run("worktree", "list"); after != before {
		t.Errorf("failures left\n%s\nwhere there was\n%s", after, before)
	}
	for _, id := range []cove.SandboxID{w.ID, second.ID} {
		if err := s.Remove(t.Context(), id, false); err != nil {
			t.Error(err)
		}
	}
	if got := mine.Run("worktree", "list"); strings.Contains(got, string(w.ID)) || strings.Count(got, "\n") != 0 {
		t.Errorf("worktrees %s", got)
	}
	mine.Run("rev-parse", "--verify", "refs/heads/cove/calm-crane") // the work exists
	if ran() {
		t.Error("a program of the repository ran")
	}
}

// TestAbandonedWorktree: the next start reverts a killed process's changes to a person's repository.
func TestAbandonedWorktree(t *testing.T) {
	mine, _ := hostile(t)
	s := newStore(t, nil)
	before := mine.Run("for-each-ref")
	w := create(t, s, ownSpec("calm-crane", workspace.Repository{Source: mine.Dir, Worktree: true}))
	// The state before the last step.
	dir := s.directory(w.ID)
	if err := os.Rename(dir, filepath.Join(s.workspaces, coming+string(w.ID))); err != nil {
		t.Fatal(err)
	}
	open(t, s.o)
	if got := mine.Run("for-each-ref"); got != before {
		t.Errorf("it left %s", got)
	}
	if got := mine.Run("worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("worktrees %s", got)
	}
}
