package folder

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// GitDirectory returns the git directory of the repository that contains dir, without symlinks: the one that its
// worktrees share. Errors: NotFound, Forbidden.
func GitDirectory(dir string) (string, error) {
	common, _, err := GitDirectories(dir)
	return common, err
}

// GitDirectories returns what GitDirectory does, and the git directory of the checkout that contains dir.
func GitDirectories(dir string) (common, own string, err error) {
	none := cove.Errorf(cove.NotFound, "%s is not in a git repository",
		dir).WithHint(`make one with "git init", or attach the directory with --mount`)
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", "", cove.Errorf(cove.NotFound, "there is no directory %s", dir)
	}
	for ; ; top = filepath.Dir(top) {
		if isGitDirectory(top) {
			return top, top, nil
		}
		git := filepath.Join(top, ".git")
		if text, err := ReadPointer(git); err == nil {
			return pointedAt(top, text)
		}
		if isGitDirectory(git) {
			return git, git, nil
		}
		if _, err := os.Lstat(git); err == nil || top == filepath.Dir(top) { // whatever it is, git may understand it
			return "", "", none
		}
	}
}

// pointedAt returns the git directories that the .git file of a worktree or of a submodule names. That directory must
// point back: otherwise the file's author could substitute another repository than the person means. Errors: Forbidden.
func pointedAt(top, text string) (common, own string, err error) {
	refused := cove.Errorf(cove.Forbidden, "the file %s names a git directory that does not know of it",
		filepath.Join(top, ".git")).
		WithHint("name that git directory itself, if it is yours")
	below := func(dir, path string) string { // without symlinks; empty if it is missing
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return ""
		}
		return path
	}
	target, ok := strings.CutPrefix(text, "gitdir: ")
	git := below(top, target)
	if !ok || git == "" {
		return "", "", refused
	}
	if common, err := ReadPointer(filepath.Join(git, "commondir")); err == nil { // a worktree
		back, err := ReadPointer(filepath.Join(git, "gitdir"))
		common = below(git, common)
		if err != nil || below(git, back) != filepath.Join(top, ".git") || !isGitDirectory(common) ||
			filepath.Dir(git) != filepath.Join(common, "worktrees") {
			return "", "", refused
		}
		return common, git, nil
	}
	config, err := os.Open(filepath.Join(git, "config"))
	if err != nil {
		return "", "", refused
	}
	defer config.Close()
	for lines := bufio.NewScanner(io.LimitReader(config, 1<<20)); lines.Scan(); { // a submodule
		name, value, _ := strings.Cut(lines.Text(), "=")
		if strings.EqualFold(strings.TrimSpace(name), "worktree") &&
			below(git, strings.Trim(strings.TrimSpace(value), `"`)) == top && isGitDirectory(git) {
			return git, git, nil
		}
	}
	return "", "", refused
}

// isGitDirectory is git's own test, without the content of HEAD, and without pointers elsewhere.
func isGitDirectory(dir string) bool {
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		return false
	}
	if _, err := os.Lstat(filepath.Join(dir, "commondir")); err == nil || Waits(dir) {
		return false
	}
	_, err := os.Lstat(filepath.Join(dir, "HEAD"))
	for _, name := range []string{"objects", "refs"} {
		if fi, e := os.Lstat(filepath.Join(dir, name)); err == nil && (e != nil || !fi.IsDir()) {
			return false
		}
	}
	return err == nil
}

// Waits reports whether git would wait without end in a git directory, for a writer of a pipe in place of a file.
func Waits(dir string) bool {
	return slices.ContainsFunc([]string{"HEAD", "config", "config.worktree", "packed-refs", "info/exclude"},
		func(name string) bool {
			fi, err := os.Stat(filepath.Join(dir, name))
			return err == nil && fi.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket) != 0
		})
}

// ReadPointer reads the one line of a pointer file.
func ReadPointer(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !fi.Mode().IsRegular() || fi.Size() > 4096 {
		return "", errors.New("it is no small file")
	}
	data, err := os.ReadFile(path)
	return strings.TrimRight(string(data), "\r\n"), err
}

// Below returns the path of a directory below the top of its working files; empty if it is the top, or outside any
// repository.
func Below(dir string) string {
	top, err := Top(dir)
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

// Top returns the top of dir's working files. Errors: InvalidArgument in a repository without any.
func Top(dir string) (string, error) {
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "there is no directory %s", dir)
	}
	for ; ; top = filepath.Dir(top) {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			return top, nil
		}
		if top == filepath.Dir(top) || isGitDirectory(top) {
			return "", cove.Errorf(cove.InvalidArgument, "the repository at %s has no working files",
				dir).WithHint("leave what is not committed out: there is nothing")
		}
	}
}
