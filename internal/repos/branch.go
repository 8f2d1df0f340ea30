package repos

import (
	"context"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Branch is a branch of a repository of this machine, at the commit that it was looked at.
type Branch struct {
	git               *hostgit.Git
	dir, name, commit string
}

// RemovableBranch returns a branch of the repository around dir that can be removed: it is checked out nowhere but at
// the worktree except, which may be empty, and with insist false each of its commits is in another branch, a tag or a
// branch of a remote. Without such a branch it returns nil. Errors: NotFound, Forbidden, Conflict.
func RemovableBranch(ctx context.Context, dir, name, except string, insist bool) (*Branch, error) {
	common, err := folder.GitDirectory(dir)
	if err != nil {
		return nil, err
	}
	git, err := hostgit.Find()
	if err != nil {
		return nil, err
	}
	ref := "refs/heads/" + name
	b := &Branch{git: git, dir: common, name: name}
	b.commit, err = git.Line(ctx, hostgit.Run{Dir: common, Command: []string{"rev-parse"},
		Flags: []string{"--verify", "--quiet"}, Args: []string{ref + "^{commit}"}})
	if hostgit.ExitCode(err) == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	trees, err := git.Output(ctx, hostgit.Run{Dir: common, Command: []string{"worktree", "list"},
		Flags: []string{"--porcelain"}})
	if err != nil {
		return nil, err
	}
	if at := checkedOut(string(trees), ref, except); at != "" {
		return nil, cove.Errorf(cove.Conflict, "the branch %s is checked out in %s, and is not removed", name, at).
			WithHint("switch to another branch there, or leave out --delete-branch")
	}
	if insist {
		return b, nil
	}
	lost, err := git.Output(ctx, hostgit.Run{Dir: common, Command: []string{"rev-list"},
		Flags: []string{"--pretty=format:%h %s", "--abbrev-commit", "--not", "--exclude=" + name, "--branches", "--remotes",
			"--tags", "--not"}, Args: []string{b.commit}})
	if err != nil {
		return nil, err
	}
	if subjects := subjectsOf(string(lost)); len(subjects) > 0 {
		const few = 3
		said, more := strings.Join(subjects[:min(few, len(subjects))], ", "), ""
		if len(subjects) > few {
			more = fmt.Sprintf(" and %d more", len(subjects)-few)
		}
		return nil, cove.Errorf(cove.Conflict, "the branch %s has commits that no other branch or tag has, and is not "+
			"removed: %s%s", name, said, more).
			WithHint("push or merge it first, or remove it all the same: --delete-branch=force")
	}
	return b, nil
}

// checkedOut returns the worktree, of those that git lists, that has a branch checked out; except is left out.
func checkedOut(list, ref, except string) string {
	for tree := range strings.SplitSeq(list, "\n\n") {
		path := ""
		for line := range strings.Lines(tree) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			switch {
			case key == "worktree":
				path = value
			case key == "branch" && value == ref && path != except:
				return path
			}
		}
	}
	return ""
}

// subjectsOf returns the lines for people from what "git rev-list" lists.
func subjectsOf(list string) (all []string) {
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "commit ") {
			all = append(all, fmt.Sprintf("%.80q", line))
		}
	}
	return all
}

// Name returns the branch's name.
func (b *Branch) Name() string { return b.name }

// Remove removes the branch, unless it has moved since it was looked at. Errors: Conflict.
func (b *Branch) Remove(ctx context.Context) error {
	_, err := b.git.Output(ctx, hostgit.Run{Dir: b.dir, Command: []string{"update-ref"}, Flags: []string{"-d"},
		Args: []string{"refs/heads/" + b.name, b.commit}})
	if hostgit.ExitCode(err) > 0 {
		return cove.Errorf(cove.Conflict, "the branch %s is not removed: %w", b.name, err).
			WithHint("it may have moved; see \"git log %s\"", b.name)
	}
	return err
}
