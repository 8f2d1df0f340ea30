package repos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// trap is work that runs a program by the person's next command of git, unless apply asks about it.
type trap struct {
	set    [2]string // that the person has configured
	files  []string  // that the sandbox makes: name and content, and %s is a command that makes a marker
	dir    string    // where the person runs git
	run    []string
	asking string // about this one
}

var traps = map[string]trap{
	"a bare repository": {files: []string{"sub/objects/k", "", "sub/refs/k", "", "sub/HEAD", "ref: refs/heads/main\n",
		"sub/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n" +
			"\tfsmonitor = \"%s; false\"\n"},
		dir: "sub", run: []string{"status"}, asking: "sub/HEAD"},
	"HEAD and commondir": {files: []string{"s/HEAD", "ref: refs/heads/main\n", "s/commondir", "../c\n", "c/objects/k", "",
		"c/refs/k", "", "c/config", "[alias]\n\tx = \"!%s\"\n"}, dir: "s", run: []string{"x"}, asking: "c/config"},
	"the hooks of a fixture": {files: []string{"fixture/hooks/pre-commit", "#!/bin/sh\n%s\n"}, dir: "fixture",
		run:    []string{"--work-tree=.", "commit", "-q", "--allow-empty", "-m", "mine"},
		asking: "fixture/hooks/pre-commit"},
	"core.hooksPath": {set: [2]string{"core.hooksPath", "tools/hooks"},
		files: []string{"tools/hooks/pre-commit", "#!/bin/sh\n%s\n"},
		run:   []string{"commit", "-q", "--allow-empty", "-m", "mine"}, asking: "tools/hooks/pre-commit"},
	"include.path": {set: [2]string{"include.path", "../tools/config"},
		files: []string{"tools/config", "[alias]\n\tx = \"!%s\"\n"}, run: []string{"x"}, asking: "tools/config"},
	"a file system monitor": {set: [2]string{"core.fsmonitor", "tools/monitor"},
		files: []string{"tools/monitor", "#!/bin/sh\n%s\n"}, run: []string{"status"}, asking: "tools/monitor"},
	"a linked hook": {files: []string{"tools/check", "#!/bin/sh\n%s\n"},
		run: []string{"commit", "-q", "--allow-empty", "-m", "mine"}, asking: "tools/check"},
}

// TestApplyAsks: what an ordinary git runs by the person's next command is applied on request alone. That it runs then
// is seen with git itself.
func TestApplyAsks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	markers := t.TempDir()
	marker := func(name string) string { return filepath.Join(markers, strings.ReplaceAll(name, " ", "-")) }
	s, w, mine := worked(t, func(git gittest.Git) {
		for name, c := range traps {
			for i := 0; i < len(c.files); i += 2 {
				git.Write(c.files[i], strings.ReplaceAll(c.files[i+1], "%s", "touch "+marker(name)))
				if strings.HasPrefix(c.files[i+1], "#!") {
					if err := os.Chmod(filepath.Join(git.Dir, c.files[i]), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
	if err := os.Symlink("../../tools/check", filepath.Join(mine.Dir, ".git/hooks/pre-commit")); err != nil {
		t.Fatal(err)
	}
	mine.Run("init", "-q", "--bare", "fixture")
	mine.Run("--git-dir=fixture", "config", "core.bare", "false")
	for name, c := range traps {
		t.Run(name, func(t *testing.T) {
			if c.set[0] != "" {
				mine.Run("config", c.set[0], c.set[1])
				defer mine.Run("config", "--unset", c.set[0])
			}
			var work Work
			for i := 0; i < len(c.files); i += 2 {
				work.Paths = append(work.Paths, c.files[i])
			}
			_, err := s.Apply(t.Context(), w.ID, work, mine.Dir, ApplyStyle{})
			if cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), c.asking) ||
				!strings.Contains(cove.ErrorHint(err), "--allow-restricted") {
				t.Errorf("applied without asking: %v", err)
			}
			if _, err := s.Apply(t.Context(), w.ID, work, mine.Dir, ApplyStyle{Restricted: true}); err != nil {
				t.Fatal(err)
			}
			ran(t, marker(name), filepath.Join(mine.Dir, c.dir), c.run...)
		})
	}
}

// ran fails unless an ordinary git makes a marker.
func ran(t *testing.T, marker, dir string, args ...string) {
	t.Helper()
	out := ordinary(dir, args...)
	if !exists(marker) {
		t.Errorf("git %v runs nothing, so that this shows nothing: %s", args, out)
	}
}

// ordinary runs git as a person does.
func ordinary(dir string, args ...string) string {
	git := exec.Command("git", args...)
	git.Dir = dir
	git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.example",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.example", "GIT_PAGER=cat")
	out, err := git.CombinedOutput()
	return fmt.Sprintf("%s (%v)", out, err)
}
