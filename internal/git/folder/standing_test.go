package folder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestStand: what a checkout of the commits lacks is counted, in a worktree of the repository, too.
func TestStand(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	top, err := filepath.EvalSymlinks(git.Dir)
	if err != nil {
		t.Fatal(err)
	}
	git.Run("init", "-q", "-b", "main")
	stand := func(dir string) Standing {
		t.Helper()
		st, err := Stand(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	git.Write("a", "1\n")
	git.Run("add", "a")
	if st := stand(top); st.Changed != 1 || st.Untracked != 0 || st.Detached != "" {
		t.Errorf("before the first commit: %+v", st)
	}
	git.Write("sub/b", "1\n")
	git.Write(".gitignore", "*.log\nnode_modules/\n")
	git.Run("add", ".")
	git.Run("commit", "-qm", "one")
	if st := stand(top); st.Top != top || st.Changed+st.Untracked+len(st.Ignored) != 0 {
		t.Errorf("all is committed: %+v", st)
	}
	git.Write("a", "2\n")
	git.Run("rm", "-q", "sub/b")
	git.Write("new/c", "1\n")
	git.Write("new/d", "1\n")
	git.Write("x.log", "1\n")
	git.Write("node_modules/m/index.js", "1\n")
	st := stand(filepath.Join(top, "new"))
	if st.Changed != 2 || st.Untracked != 2 || !slices.Equal(st.Ignored, []string{"node_modules/", "x.log"}) {
		t.Errorf("changed: %+v", st)
	}
	git.Run("checkout", "-q", "--detach")
	if st := stand(top); st.Detached != git.Run("rev-parse", "HEAD") {
		t.Errorf("detached: %+v", st)
	}
	beside := filepath.Join(t.TempDir(), "beside")
	git.Run("worktree", "add", "-q", "-b", "side", beside)
	git.In(beside).Write("a", "3\n")
	if st := stand(beside); st.Changed != 1 || st.Untracked != 0 || st.Detached != "" {
		t.Errorf("a worktree: %+v", st)
	}
	if _, err := Stand(t.Context(), t.TempDir()); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("no repository: %v", err)
	}
}

// TestStandStartsNothing: what the repository's configuration names is not started.
func TestStandStartsNothing(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	started := filepath.Join(t.TempDir(), "started")
	git.Run("init", "-q")
	git.Write("a", "1\n")
	git.Write(".gitattributes", "a filter=f diff=d\n")
	git.Run("add", ".")
	git.Run("commit", "-qm", "one")
	for _, name := range []string{"core.fsmonitor", "filter.f.clean", "filter.f.process", "diff.d.command",
		"diff.d.textconv", "diff.external"} {
		git.Run("config", name, "touch "+started)
	}
	git.Write("a", "2\n")
	if st, err := Stand(t.Context(), git.Dir); err != nil || st.Changed != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("a program was started")
	}
}
