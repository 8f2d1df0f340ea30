package repos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// worktree makes the checkout a worktree of repository.git, which belongs to the workspace and is not visible inside.
func (w *making) worktree(ctx context.Context, at start, refs map[string]string, sparse []string) error {
	if w.record.Base == "" {
		return cove.Errorf(cove.InvalidArgument, "an empty repository has no worktrees").WithHint("leave out --worktree")
	}
	dir := filepath.Join(w.files, repositoryDir)
	if err := w.bare(ctx, dir, "../.."+workspace.BorrowedPlace, true, at, refs); err != nil {
		return err
	}
	w.record.Hidden = repositoryDir
	return w.link(ctx, dir, filepath.Join(w.s.filesIn(w.final, w.record), repositoryDir), nil, at.branch, sparse)
}

// worktreeOf makes the checkout a worktree of a person's own repository, with that repository's branches; nothing is
// fetched.
func (w *making) worktreeOf(ctx context.Context, r remote, want workspace.Repository) error {
	if len(r.borrowed) > 0 { // which git beside the worktree does not see
		return cove.Errorf(cove.Unsupported, "the repository %s has objects of another one (objects/info/alternates), and "+
			"cannot have worktrees for sandboxes", r.Dir).WithHint("leave out --worktree, or make it whole: \"git repack " +
			"-a -d\", then remove objects/info/alternates")
	}
	tell(w.progress, "adding a worktree to "+r.Dir)
	a, err := w.s.listNeighbour(ctx, w.held, r.own)
	if err != nil {
		return err
	}
	at, err := w.plan(ctx, a, want)
	if err != nil {
		return err
	}
	if at.id == "" {
		return cove.Errorf(cove.InvalidArgument, "an empty repository has no worktrees").WithHint(
			"make a first commit, or leave out --worktree")
	}
	w.record.Shared = sharedBranches(a, w.s.o.Shared)
	base, err := w.s.line(ctx, w.held, hostgit.Run{Dir: r.git, Command: []string{"rev-parse"},
		Flags: []string{"--verify", "--quiet"}, Args: []string{at.id + "^{commit}"}})
	if err != nil {
		return cove.Errorf(cove.NotFound, "%s has no commit %s", r.Dir, at.id)
	}
	w.record.Base, w.record.Hidden = base, r.git
	if err := w.importer(a.objectFormat(), nil, false, at); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(w.in(importDir), "objects/info/alternates"),
		filepath.Join(r.git, "objects")+"\n"); err != nil {
		return err
	}
	if err := copyShallow(r.git, w.in(importDir)); err != nil {
		return err
	}
	if err := w.remember(); err != nil {
		return err
	}
	var branch []string
	if at.tracks && at.ref != "refs/heads/"+at.branch {
		return cove.Errorf(cove.Conflict, "%s has a branch %s already, which begins elsewhere", r.Dir,
			at.branch).WithHint("choose another, or leave out what to begin at")
	}
	if !at.tracks {
		w.record.NewRef = "refs/heads/" + at.branch
		branch = []string{"-b", at.branch}
	}
	// A process that finds this record incomplete removes the branch again.
	if err := writeRecord(w.dir, w.record); err != nil {
		return err
	}
	return unlessLacking(r, "a worktree", w.link(ctx, r.git, r.git, branch, at.branch, want.Sparse))
}

func sharedBranches(a advert, more []policy.Refs) []string {
	refs := a.shared(more)
	return slices.DeleteFunc(a.branches(), func(name string) bool { return refs["refs/heads/"+name] == "" })
}

// link adds the checkout to the worktrees of a repository, whose path will be final: it makes or uses the branch, and
// writes the files.
func (w *making) link(ctx context.Context, dir, final string, branch []string, name string, sparse []string) error {
	if err := w.weigh(ctx, sparse); err != nil {
		return err
	}
	tree := filepath.Join(w.files, checkoutDir)
	run := hostgit.Run{Dir: dir, Command: []string{"worktree", "add"}, Flags: []string{"--no-checkout", "--quiet"},
		Args: []string{tree, name}}
	if branch != nil {
		run.Flags = append(run.Flags, "-b"+name)
		run.Args = []string{tree, w.record.Base}
	}
	if _, err := w.git(ctx, run); err != nil {
		if strings.Contains(err.Error(), "already checked out") || strings.Contains(err.Error(), "already used by worktree") {
			return cove.Errorf(cove.Conflict, "the branch %s is checked out elsewhere: %w", name,
				err).WithHint("choose another branch")
		}
		return err
	}
	text, err := folder.ReadPointer(filepath.Join(tree, ".git"))
	if err != nil {
		return storageFull("add a worktree", err)
	}
	w.record.Worktree = filepath.Base(strings.TrimPrefix(text, "gitdir: "))
	if err := writeRecord(w.dir, w.record); err != nil {
		return err
	}
	admin := filepath.Join(dir, "worktrees", w.record.Worktree)
	if err := w.fill(ctx, admin, tree, sparse); err != nil {
		return err
	}
	// Both paths are those after the final rename.
	if err := writeFile(filepath.Join(tree, ".git"), "gitdir: "+filepath.Join(final, "worktrees", w.record.Worktree)+
		"\n"); err != nil {
		return err
	}
	tree = filepath.Join(w.s.filesIn(w.final, w.record), checkoutDir)
	return writeFile(filepath.Join(admin, "gitdir"), filepath.Join(tree, ".git")+"\n")
}

// releaseWorktree removes a workspace from the worktrees of a person's own repository. The branch, with its work,
// stays.
func (s *Store) releaseWorktree(r record) error {
	if !filepath.IsAbs(r.Hidden) || r.Worktree == "" {
		return nil
	}
	root, err := os.OpenRoot(r.Hidden)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storageFull("release the worktree", err)
	}
	defer root.Close()
	if !filepath.IsLocal(r.Worktree) || strings.ContainsRune(r.Worktree, '/') {
		return cove.Errorf(cove.Corrupt, "the record of a workspace names no worktree: %.100q", r.Worktree)
	}
	admin := filepath.Join("worktrees", r.Worktree)
	text, err := root.ReadFile(filepath.Join(admin, "gitdir"))
	if err != nil || !bytes.Contains(text, []byte(r.ID)) {
		return nil // it belongs to another worktree by now
	}
	if err := root.RemoveAll(admin); err != nil {
		return storageFull("release the worktree", err)
	}
	return nil
}

// abandonWorktree reverts the changes of an unfinished workspace to a person's own repository, including the branch if
// it has no work.
func (s *Store) abandonWorktree(ctx context.Context, r record) error {
	if !filepath.IsAbs(r.Hidden) {
		return nil
	}
	if r.Worktree == "" { // it may have been added nevertheless
		r.Worktree = s.findWorktree(r)
	}
	err := s.releaseWorktree(r)
	if r.NewRef == "" {
		return err
	}
	_, e := s.git(ctx, nil, hostgit.Run{Dir: r.Hidden, Command: []string{"update-ref"}, Flags: []string{"-d"},
		Args: []string{r.NewRef, r.Base}})
	if hostgit.ExitCode(e) > 0 {
		e = nil // it was not made yet, or has work
	}
	return cmp.Or(err, e)
}

// findWorktree returns the name of a workspace's worktree.
func (s *Store) findWorktree(r record) string {
	entries, _ := os.ReadDir(filepath.Join(r.Hidden, "worktrees")) // if missing, there are none
	for _, e := range entries {
		text, err := folder.ReadPointer(filepath.Join(r.Hidden, "worktrees", e.Name(), "gitdir"))
		if err == nil && strings.Contains(text, string(r.ID)) {
			return e.Name()
		}
	}
	return ""
}
