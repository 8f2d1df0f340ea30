package hostgit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNamed: what the owner's own configuration names in the checkout is found, wherever it stands.
func TestNamed(t *testing.T) {
	find(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, repo := filepath.Join(base, "home"), filepath.Join(base, "repo")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "more"))
	newRepository(t, repo)
	write(t, filepath.Join(home, ".gitconfig"), "[core]\n\teditor = vi\n[alias]\n\tx = !sh ./tools/alias.sh\n", 0o644)
	write(t, filepath.Join(home, "more/git/config"), "[pager]\n\tlog = "+repo+"/tools/pager\n", 0o644)
	write(t, filepath.Join(repo, "tools/included"), "[core]\n\tfsmonitor = 'tools/monitor' --x\n", 0o644)
	write(t, filepath.Join(repo, "tools/linked"), "#!/bin/sh\n", 0o755)
	if err := os.Symlink("../../tools/linked", filepath.Join(repo, ".git/hooks/post-commit")); err != nil {
		t.Fatal(err)
	}
	for _, setting := range [][2]string{{"core.hooksPath", "tools/hooks"}, {"include.path", "../tools/included"},
		{"includeIf.onbranch:never.path", "../tools/never"}, {"filter.x.clean", "python3 tools/clean.py %f"},
		{"filter.lfs.process", "git-lfs filter-process"}, {"remote.origin.url", "https://git.example/x"},
		{"user.name", "tools"}} {
		plain(t, repo, nil, "config", setting[0], setting[1])
	}
	got := Named(t.Context(), filepath.Join(repo, ".git"), repo)
	for _, want := range []string{"tools/hooks/", "tools/included", "tools/never", "tools/clean.py", "tools/monitor",
		"tools/alias.sh", "tools/pager", "tools/linked"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among %q", want, got)
		}
	}
	for _, not := range []string{"tools", "tools/", ".git/config"} {
		if slices.Contains(got, not) {
			t.Errorf("%s is among %q", not, got)
		}
	}
}
