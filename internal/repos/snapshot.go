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

// maxPlain bounds the files of a directory without a repository, against copying a home by mistake.
const maxPlain = 100_000

// snapshot starts the branch at a commit of a person's working files: committed and uncommitted changes, and new files
// except ignored ones. The person's repository does not change, and its configuration has no effect: git works in
// import.git, whose configuration is Cove's. Files of nested repositories are skipped.
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

// plain makes the checkout of a directory outside any repository: a copy, in a new repository.
func (w *making) plain(ctx context.Context, dir string, want workspace.Repository) error {
	if dir == "/" || dir == filepath.Clean(os.Getenv("HOME")) {
		return cove.Errorf(cove.Forbidden, "%s is not copied: everything that is yours is in it",
			dir).WithHint("name the directory of a project")
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

// person is a person's directory that becomes a commit.
type person struct {
	w     *making
	top   string // of the working files
	git   string // the person's git directory; empty for a directory without a repository
	index string // Cove's own
	most  int    // files
}

// run returns a git in import.git that reads the person's files, and objects that the person has staged.
func (p person) run(command ...string) hostgit.Run {
	r := hostgit.Run{Dir: p.w.in(importDir), Own: true, WorkTree: p.top, Index: p.index, Command: command[:1],
		Flags: command[1:]}
	if p.git != "" {
		r.Env = []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(p.git, "objects")}
		r.Settings = []hostgit.Setting{{Key: "core.excludesFile", Value: filepath.Join(p.git, "info/exclude")}}
	}
	return r
}

// tree returns the id of the working files' tree; empty if it is the committed one. The person's index tells which
// files need not be read; without a usable index all are.
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

// copyIndex copies the index of the working files in top.
func copyIndex(top, to string) error {
	git := filepath.Join(top, ".git")
	if text, err := readSmall(git); err == nil { // of a worktree
		if git = strings.TrimPrefix(text, "gitdir: "); !filepath.IsAbs(git) {
			git = filepath.Join(top, git)
		}
	}
	// Git reads a file again that has changed in the second of the index's own time: the copy keeps that time.
	info, err := os.Stat(filepath.Join(git, "index"))
	if err != nil {
		return err
	}
	if err := copyFile(filepath.Join(git, "index"), to, 0o600); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// grow updates the index to the files, and writes its tree unless that is the committed one.
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

// staged reports whether the index differs from the last commit.
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

// changed returns the files that differ from the index. Nested repositories are skipped: git would run in them.
func (p person) changed(ctx context.Context) ([]string, error) {
	var all []string
	room := p.w.s.o.MaxCheckout // bytes
	out, err := p.w.git(ctx, p.run("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"))
	if err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	slices.Sort(names) // deleted files are listed as modified too
	for _, name := range slices.Compact(names) {
		info, err := os.Lstat(filepath.Join(p.top, name))
		switch {
		case strings.HasSuffix(name, "/") || err == nil && info.IsDir():
			tell(p.w.progress, "leaving out "+strings.TrimSuffix(name, "/")+", a repository of its own")
			continue
		case err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
			continue // a socket or device, which git ignores
		case err == nil:
			room -= info.Size()
		}
		all = append(all, name)
		if len(all) > p.most || room < 0 {
			return nil, cove.Errorf(cove.TooLarge, "what is not committed in %s is more than %d GiB or %d files", p.top,
				p.w.s.o.MaxCheckout>>30, p.most).
				WithHint("name generated files in .gitignore, or work on the directory itself")
		}
	}
	return all, nil
}

// commit makes a commit of a tree, with the person's last commit as its parent.
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

// pack packs the commit's objects that the mirror lacks into import.git, as a fetch would.
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
	_, err := p.w.git(ctx, hostgit.Run{Dir: p.w.in(importDir), Command: []string{"prune-packed"},
		Flags: []string{"--quiet"}})
	return err
}

// plainDirectory returns the directory of a source outside any repository; empty for one inside. Errors:
// InvalidArgument, Forbidden, NotFound.
func (s *Store) plainDirectory(who cove.Principal, want workspace.Repository) (string, error) {
	src, err := ParseSource(who, want.Source)
	if err != nil {
		return "", err
	}
	if src.Dir == "" {
		return "",
			cove.Errorf(cove.InvalidArgument, "what is not committed is in a directory of this machine, and %s is none",
				want.Source).WithHint("name the directory, or leave it out")
	}
	dir, err := filepath.EvalSymlinks(src.Dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", src.Dir)
	}
	if _, err := gitDirectory(dir); cove.ErrorCode(err) != cove.NotFound {
		return "", nil // its reader reports the error
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%s is not a directory", src.Dir)
	}
	return dir, nil
}

// Below returns the path of a directory below the top of its working files; empty if it is the top, or outside any
// repository.
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

// worktreeTop returns the top of dir's working files. Errors: InvalidArgument in a repository without any.
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
			return "", cove.Errorf(cove.InvalidArgument, "the repository at %s has no working files",
				dir).WithHint("leave what is not committed out: there is nothing")
		}
	}
}
