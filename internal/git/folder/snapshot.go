package folder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Snapshot is a commit to be made of a person's working files: committed and uncommitted changes, and new files except
// ignored ones. The person's repository does not change, and its configuration has no effect except on the line ends of
// files: git works in Dir, whose configuration is Cove's. Files of nested repositories are skipped.
type Snapshot struct {
	Top   string // of the working files
	Git   string // the person's git directory; empty for a directory without a repository
	Base  string // the person's last commit, which Dir can read; empty without one
	Dir   string // the bare repository in which git works, and which has the commit then
	Index string // file of Cove's own, removed at the end
	Files int    // at most
	Bytes int64  // at most
	Held  []*os.File
	Tell  func(step string)

	git      *hostgit.Git
	settings []hostgit.Setting // of the person, about the form of files
	filters  []string          // names of the person's required filters, which do not run
}

// Commit makes the commit and returns its id; empty if the files are as committed. Errors: TooLarge, those of hostgit.
func (p *Snapshot) Commit(ctx context.Context) (string, error) {
	defer os.Remove(p.Index)
	var err error
	if p.git, err = hostgit.Find(); err != nil {
		return "", err
	}
	if p.settings, p.filters, err = habits(ctx, p.git, p.Git); err != nil {
		return "", err
	}
	tree, err := p.tree(ctx)
	if err != nil || tree == "" {
		return "", err
	}
	return p.commit(ctx, tree)
}

func (p *Snapshot) output(ctx context.Context, r hostgit.Run) ([]byte, error) {
	r.Files = append(r.Files, p.Held...)
	return p.git.Output(ctx, r)
}

func (p *Snapshot) line(ctx context.Context, r hostgit.Run) (string, error) {
	out, err := p.output(ctx, r)
	return strings.TrimSuffix(string(out), "\n"), err
}

// run returns a git in Dir that reads the person's files, and objects that the person has staged.
func (p *Snapshot) run(command ...string) hostgit.Run {
	r := hostgit.Run{Dir: p.Dir, Own: true, WorkTree: p.Top, Index: p.Index, Command: command[:1],
		Flags: command[1:]}
	if p.Git != "" {
		r.Env = []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(p.Git, "objects")}
		r.Settings = []hostgit.Setting{{Key: "core.excludesFile", Value: filepath.Join(p.Git, "info/exclude")}}
	}
	r.Settings = append(r.Settings, p.settings...)
	return r
}

// tree returns the id of the working files' tree; empty if it is the committed one. The person's index tells which
// files need not be read; without a usable index all are.
func (p *Snapshot) tree(ctx context.Context) (string, error) {
	if copyIndex(p.Top, p.Index) == nil {
		tree, err := p.grow(ctx)
		if err == nil || cove.ErrorCode(err) != cove.Internal && cove.ErrorCode(err) != cove.NotFound {
			return tree, err
		}
		if err := os.Remove(p.Index); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", cannotWrite(err)
		}
	}
	if p.Base != "" {
		r := p.run("read-tree")
		r.WorkTree, r.Args = "", []string{p.Base}
		if _, err := p.output(ctx, r); err != nil {
			return "", err
		}
	}
	return p.grow(ctx)
}

// copyIndex copies the index of the working files in top.
func copyIndex(top, to string) error {
	git := filepath.Join(top, ".git")
	if text, err := ReadPointer(git); err == nil { // of a worktree
		if git = strings.TrimPrefix(text, "gitdir: "); !filepath.IsAbs(git) {
			git = filepath.Join(top, git)
		}
	}
	// Git reads a file again that has changed in the second of the index's own time: the copy keeps that time.
	info, err := os.Stat(filepath.Join(git, "index"))
	if err != nil {
		return err
	}
	if err := copyFile(filepath.Join(git, "index"), to); err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// grow updates the index to the files, and writes its tree unless that is the committed one.
func (p *Snapshot) grow(ctx context.Context) (string, error) {
	var staged bool
	var why error
	var look sync.WaitGroup
	look.Go(func() { staged, why = p.staged(ctx) })
	changed, err := p.changed(ctx)
	look.Wait()
	if err == nil && len(changed) > 0 {
		r := p.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
		r.Stdin = strings.NewReader(strings.Join(changed, "\x00") + "\x00")
		if _, err = p.output(ctx, r); err == nil {
			staged, why = p.staged(ctx)
		}
	}
	if err = cmp.Or(err, why); err != nil || !staged {
		return "", err
	}
	r := p.run("write-tree")
	r.WorkTree = ""
	return p.line(ctx, r)
}

// staged reports whether the index differs from the last commit.
func (p *Snapshot) staged(ctx context.Context) (bool, error) {
	if p.Base == "" {
		return true, nil
	}
	r := p.run("diff-index", "--cached", "--quiet")
	r.WorkTree, r.Args = "", []string{p.Base}
	_, err := p.output(ctx, r)
	if hostgit.ExitCode(err) == 1 {
		return true, nil
	}
	return false, err
}

// changed returns the files that differ from the index. Nested repositories are skipped: git would run in them.
func (p *Snapshot) changed(ctx context.Context) ([]string, error) {
	var all []string
	room := p.Bytes // bytes
	out, err := p.output(ctx, p.run("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"))
	if err != nil {
		return nil, err
	}
	names := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	slices.Sort(names) // deleted files are listed as modified too
	names = slices.Compact(names)
	filtered, err := p.filtered(ctx, names)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(p.Top, name))
		switch {
		case strings.HasSuffix(name, "/") || err == nil && info.IsDir():
			p.Tell("leaving out " + strings.TrimSuffix(name, "/") + ", a repository of its own")
			continue
		case err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
			continue // a socket or device, which git ignores
		case err == nil && info.Mode().IsRegular() && filtered[name] && !isPointer(filepath.Join(p.Top, name)):
			left = append(left, name)
			continue
		case err == nil:
			room -= info.Size()
		}
		all = append(all, name)
		if len(all) > p.Files || room < 0 {
			return nil, cove.Errorf(cove.TooLarge, "what is not committed in %s is more than %d GiB or %d files", p.Top,
				p.Bytes>>30, p.Files).
				WithHint("name generated files in .gitignore, or work on the directory itself")
		}
	}
	if len(left) > 0 {
		p.Tell(fmt.Sprintf("leaving %s as committed: your filter (%s) does not run here", few(left),
			strings.Join(p.filters, ", ")))
	}
	return all, nil
}

// filtered returns those of the files that a required filter of the person would change: their contents are not what
// git has to store, and may be what it must not, as with encryption.
func (p *Snapshot) filtered(ctx context.Context, names []string) (map[string]bool, error) {
	if len(p.filters) == 0 || len(names) == 0 {
		return nil, nil
	}
	r := p.run("check-attr", "-z", "--stdin", "--all")
	r.Stdin = strings.NewReader(strings.Join(names, "\x00") + "\x00")
	out, err := p.output(ctx, r)
	found := map[string]bool{}
	for fields := strings.Split(string(out), "\x00"); len(fields) >= 3; fields = fields[3:] {
		if fields[1] == "filter" && slices.Contains(p.filters, fields[2]) {
			found[fields[0]] = true
		}
	}
	return found, err
}

// commit makes a commit of a tree, with the person's last commit as its parent.
func (p *Snapshot) commit(ctx context.Context, tree string) (string, error) {
	r := p.run("commit-tree")
	r.WorkTree, r.Args, r.Stdin = "", []string{tree}, strings.NewReader("What was in the directory\n")
	if p.Base != "" {
		r.Flags, r.Stdin = []string{"-p" + p.Base}, strings.NewReader("What was not committed\n")
	}
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		r.Env = append(r.Env, "GIT_"+who+"_NAME=Cove", "GIT_"+who+"_EMAIL=cove@localhost")
	}
	return p.line(ctx, r)
}

// Pack packs the commit's objects that are not of the base, as a fetch would.
func (p *Snapshot) Pack(ctx context.Context, commit string) error {
	r := p.run("pack-objects", "--revs", "--quiet", "--delta-base-offset")
	r.WorkTree, r.Args = "", []string{filepath.Join(p.Dir, "objects/pack/pack")}
	revisions := bytes.NewBufferString(commit + "\n")
	if p.Base != "" {
		revisions.WriteString("^" + p.Base + "\n")
	}
	r.Stdin = revisions
	if _, err := p.output(ctx, r); err != nil {
		return err
	}
	_, err := p.output(ctx, hostgit.Run{Dir: p.Dir, Command: []string{"prune-packed"},
		Flags: []string{"--quiet"}})
	return err
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src) // shares blocks where the file system supports it
	return errors.Join(err, dst.Close())
}

func cannotWrite(err error) error {
	return cove.Errorf(cove.StorageFull, "cannot take what is not committed: %w", err).WithHint("free some space")
}
