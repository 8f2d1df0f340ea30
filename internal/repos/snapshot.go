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
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// maxPlain is how many files a directory without a repository may have: nobody
// means to copy a home.
const maxPlain = 100_000

// snapshot has the branch begin at a commit of what is in a person's working
// files: what is committed, what is not, and new files but those that are
// ignored. In the person's repository nothing changes, and its configuration
// counts for nothing: git works in import.git, whose configuration is Cove's.
// No file of a repository within is looked at.
func (w *making) snapshot(ctx context.Context, top, git string, most int) error {
	tell(w.progress, "taking what is not committed")
	p := person{w: w, top: top, git: git, index: w.in("snapshot.index"), most: most}
	defer os.Remove(p.index)
	tree, err := p.tree(ctx)
	if err != nil || tree == "" {
		return err
	}
	commit, err := p.commit(ctx, tree)
	if err != nil {
		return err
	}
	if err := p.pack(ctx, commit); err != nil {
		return err
	}
	w.record.Base = commit
	return w.remember()
}

// plain makes the checkout of a directory that is in no repository: a copy of
// it, in a repository that begins there.
func (w *making) plain(ctx context.Context, dir string, want workspace.Repository) error {
	if dir == "/" || dir == filepath.Clean(os.Getenv("HOME")) {
		return cove.Errorf(cove.Forbidden, "%s is not copied: everything that is yours is in it", dir).WithHint("name the directory of a project")
	}
	w.record.Source, w.record.Repository = want.Source, keyOfDirectory(dir)
	at, err := w.plan(ctx, advert{}, want)
	if err != nil {
		return err
	}
	if err := w.importer("sha1", nil, false, at); err != nil {
		return err
	}
	if err := w.snapshot(ctx, dir, "", maxPlain); err != nil {
		return err
	}
	tell(w.progress, "copying "+dir)
	return w.private(ctx, at, nil, want.Sparse)
}

// person is a person's directory, of which a commit is made.
type person struct {
	w     *making
	top   string // of the working files
	git   string // git directory of the person's; empty for a directory without
	index string // Cove's own
	most  int    // files
}

// run is a git in import.git that looks at the person's files. It finds what the
// person has staged, too.
func (p person) run(command ...string) hostgit.Run {
	r := hostgit.Run{Dir: p.w.in(importDir), Own: true, WorkTree: p.top, Index: p.index, Command: command[:1], Flags: command[1:]}
	if p.git != "" {
		r.Env = []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(p.git, "objects")}
		r.Settings = []hostgit.Setting{{Key: "core.excludesFile", Value: filepath.Join(p.git, "info/exclude")}}
	}
	return r
}

// tree is the id of the tree that the working files make; empty if that is what
// is committed. The person's index says which of them need not be read; where it cannot be used, all are.
func (p person) tree(ctx context.Context) (string, error) {
	if copyIndex(p.top, p.index) == nil {
		tree, err := p.grow(ctx)
		if err == nil || cove.ErrorCode(err) != cove.Internal && cove.ErrorCode(err) != cove.NotFound {
			return tree, err
		}
		if err := os.Remove(p.index); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", storageFull("make a workspace", err)
		}
	}
	if p.w.record.Base != "" {
		r := p.run("read-tree")
		r.WorkTree, r.Args = "", []string{p.w.record.Base}
		if _, err := p.w.git(ctx, r); err != nil {
			return "", err
		}
	}
	return p.grow(ctx)
}

// copyIndex copies the index of whoever works in top.
func copyIndex(top, to string) error {
	git := filepath.Join(top, ".git")
	if text, err := readSmall(git); err == nil { // a worktree's
		if git = strings.TrimPrefix(text, "gitdir: "); !filepath.IsAbs(git) {
			git = filepath.Join(top, git)
		}
	}
	return copyFile(filepath.Join(git, "index"), to, 0o600)
}

// grow brings the index up to what the files are, and writes its tree unless that
// is what is committed.
func (p person) grow(ctx context.Context) (string, error) {
	var staged bool
	var why error
	var look sync.WaitGroup
	look.Go(func() { staged, why = p.staged(ctx) })
	changed, err := p.changed(ctx)
	look.Wait()
	if err == nil && len(changed) > 0 {
		r := p.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
		r.Stdin = strings.NewReader(strings.Join(changed, "\x00") + "\x00")
		if _, err = p.w.git(ctx, r); err == nil {
			staged, why = p.staged(ctx)
		}
	}
	if err = cmp.Or(err, why); err != nil || !staged {
		return "", err
	}
	r := p.run("write-tree")
	r.WorkTree = ""
	return p.w.s.line(ctx, p.w.held, r)
}

// staged reports whether the index differs from what is committed.
func (p person) staged(ctx context.Context) (bool, error) {
	if p.w.record.Base == "" {
		return true, nil
	}
	r := p.run("diff-index", "--cached", "--quiet")
	r.WorkTree, r.Args = "", []string{p.w.record.Base}
	_, err := p.w.git(ctx, r)
	if hostgit.ExitCode(err) == 1 {
		return true, nil
	}
	return false, err
}

// changed are the files that are not as the index has them. What is a
// repository of its own is left out: git would run in it.
func (p person) changed(ctx context.Context) ([]string, error) {
	var all []string
	room := p.w.s.o.MaxCheckout // bytes
	out, err := p.w.git(ctx, p.run("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"))
	if err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	slices.Sort(names) // what is deleted is also modified
	for _, name := range slices.Compact(names) {
		info, err := os.Lstat(filepath.Join(p.top, name))
		switch {
		case strings.HasSuffix(name, "/") || err == nil && info.IsDir():
			tell(p.w.progress, "leaving out "+strings.TrimSuffix(name, "/")+", a repository of its own")
			continue
		case err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
			continue // a socket, a device: no git keeps them
		case err == nil:
			room -= info.Size()
		}
		all = append(all, name)
		if len(all) > p.most || room < 0 {
			return nil, cove.Errorf(cove.TooLarge, "what is not committed in %s is more than %d GiB or %d files", p.top, p.w.s.o.MaxCheckout>>30, p.most).
				WithHint("name generated files in .gitignore, or work on the directory itself")
		}
	}
	return all, nil
}

// commit makes a commit of a tree, after what is committed.
func (p person) commit(ctx context.Context, tree string) (string, error) {
	r := p.run("commit-tree")
	r.WorkTree, r.Args, r.Stdin = "", []string{tree}, strings.NewReader("What was in the directory\n")
	if p.w.record.Base != "" {
		r.Flags, r.Stdin = []string{"-p" + p.w.record.Base}, strings.NewReader("What was not committed\n")
	}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		r.Env = append(r.Env, "GIT_"+who+"_NAME=Cove", "GIT_"+who+"_EMAIL=cove@localhost")
	}
	return p.w.s.line(ctx, p.w.held, r)
}

// pack puts all that the commit needs, and the mirror does not have, into a pack
// of import.git, as a fetch would have.
func (p person) pack(ctx context.Context, commit string) error {
	r := p.run("pack-objects", "--revs", "--quiet", "--delta-base-offset")
	r.WorkTree, r.Args = "", []string{filepath.Join(p.w.in(importDir), "objects/pack/pack")}
	revisions := bytes.NewBufferString(commit + "\n")
	if p.w.record.Base != "" {
		revisions.WriteString("^" + p.w.record.Base + "\n")
	}
	r.Stdin = revisions
	if _, err := p.w.git(ctx, r); err != nil {
		return err
	}
	_, err := p.w.git(ctx, hostgit.Run{Dir: p.w.in(importDir), Command: []string{"prune-packed"}, Flags: []string{"--quiet"}})
	return err
}

// plainDirectory is the directory of a source that is in no repository; empty
// for one that is. Errors: InvalidArgument, Forbidden, NotFound.
func (s *Store) plainDirectory(who cove.Principal, want workspace.Repository) (string, error) {
	src, err := ParseSource(who, want.Source)
	if err != nil {
		return "", err
	}
	if src.Dir == "" {
		return "", cove.Errorf(cove.InvalidArgument, "what is not committed is in a directory of this machine, and %s is none", want.Source).WithHint("name the directory, or leave it out")
	}
	dir, err := filepath.EvalSymlinks(src.Dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", src.Dir)
	}
	if _, err := gitDirectory(dir); cove.ErrorCode(err) != cove.NotFound {
		return "", nil // what is wrong with it is said by whoever reads it
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%s is not a directory", src.Dir)
	}
	return dir, nil
}

// Below is where a directory is below the top of the working files that it is in;
// empty if it is the top, or in none.
func Below(dir string) string {
	top, err := worktreeTop(dir)
	if err != nil {
		return ""
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	below, err := filepath.Rel(top, dir)
	if err != nil || below == "." {
		return ""
	}
	return below
}

// worktreeTop is the top of the working files that dir is in. Errors:
// InvalidArgument in a repository that has none.
func worktreeTop(dir string) (string, error) {
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", dir)
	}
	for ; ; top = filepath.Dir(top) {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			return top, nil
		}
		if top == "/" || isGitDirectory(top) {
			return "", cove.Errorf(cove.InvalidArgument, "the repository at %s has no working files", dir).WithHint("leave what is not committed out: there is nothing")
		}
	}
}
