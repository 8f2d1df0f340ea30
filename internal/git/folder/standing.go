package folder

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Standing describes the working files of a person's repository, as far as a checkout of its commits lacks them.
type Standing struct {
	Top       string // of the working files, absolute
	Changed   int    // files that differ from the last commit, staged or not
	Untracked int    // files, without ignored ones
	Ignored   []string
	Detached  string // the commit at HEAD, if HEAD names no branch
}

// Ignores reports whether git ignores a path below Top, which is clean and has slashes.
func (st Standing) Ignores(p string) bool {
	return slices.ContainsFunc(st.Ignored, func(known string) bool {
		known = strings.TrimSuffix(known, "/")
		return p == known || strings.HasPrefix(p, known+"/")
	})
}

// Stand reads the working files around a directory of this machine. Ignored are directories, which end in a slash, and
// files, relative to Top. Errors: NotFound, Forbidden, InvalidArgument without working files, those of hostgit.
func Stand(ctx context.Context, dir string) (st Standing, err error) {
	if _, err := GitDirectory(dir); err != nil { // and its pointers are what they should be
		return st, err
	}
	if st.Top, err = Top(dir); err != nil {
		return st, err
	}
	git, err := hostgit.Find()
	if err != nil {
		return st, err
	}
	own := filepath.Join(st.Top, ".git")
	if text, err := ReadPointer(own); err == nil { // of a worktree: its index and its HEAD
		if own = strings.TrimPrefix(text, "gitdir: "); !filepath.IsAbs(own) {
			own = filepath.Join(st.Top, own)
		}
	}
	run := func(command string, flags ...string) hostgit.Run {
		return hostgit.Run{Dir: own, WorkTree: st.Top, Command: []string{command}, Flags: flags}
	}
	names := func(r hostgit.Run) ([]string, error) {
		out, err := git.Output(ctx, r)
		return strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }), err
	}
	named := run("rev-parse", "--verify", "--quiet")
	named.Args = []string{"HEAD^{commit}"}
	head, err := git.Line(ctx, named)
	if hostgit.ExitCode(err) < 0 {
		return st, err
	}
	if err == nil {
		changed := run("diff", "--name-only", "--no-renames", "--ignore-submodules=all", "-z")
		changed.Args = []string{head}
		all, err := names(changed)
		if err != nil {
			return st, err
		}
		st.Changed = len(all)
		branch := run("symbolic-ref", "--quiet")
		branch.Args = []string{"HEAD"}
		if _, err = git.Output(ctx, branch); hostgit.ExitCode(err) == 1 {
			st.Detached = head
		}
	}
	count := &entries{}
	others := run("ls-files", "-z", "--others", "--exclude-standard")
	others.Stdout = count
	if err := git.Run(ctx, others); err != nil {
		return st, err
	}
	st.Untracked = count.n
	if head == "" {
		tracked, err := names(run("ls-files", "-z"))
		if err != nil {
			return st, err
		}
		st.Changed = len(tracked) // staged for the first commit
	}
	st.Ignored, err = names(run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory",
		"--no-empty-directory"))
	slices.Sort(st.Ignored)
	return st, err
}

// entries counts what git ends with NUL.
type entries struct{ n int }

func (e *entries) Write(p []byte) (int, error) {
	e.n += bytes.Count(p, []byte{0})
	return len(p), nil
}
