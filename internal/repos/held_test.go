package repos

import (
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestHeld: commits of every branch and files that are not committed count until they were pushed or applied.
func TestHeld(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	for name, r := range map[string]workspace.Repository{"whole": {}, "worktree": {Worktree: true}} {
		t.Run(name, func(t *testing.T) {
			repo := server.Create(name + ".git")
			s := newStore(t, server)
			r.Source = repo.URL
			w := create(t, s, spec("x", r))
			git := server.Client().In(w.Directory)
			step := func(what string, want Held) {
				t.Helper()
				refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := s.Held(t.Context(), w.ID, refs); err != nil || got != want {
					t.Errorf("%s: %+v, %v, not %+v", what, got, err, want)
				}
			}
			// snapshot makes another commit of the same files each time, as a sandbox does.
			snapshots := 0
			snapshot := func() {
				index := git.With("GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"),
					"GIT_AUTHOR_DATE=2001-02-03T04:05:0"+string(rune('0'+snapshots))+"Z")
				snapshots++
				index.Run("add", "--all")
				git.Run("update-ref", WorkRef, index.Run("commit-tree", "-p", "HEAD", "-m", "work", index.Run("write-tree")))
			}
			step("at its beginning", Held{})
			git.Commit("one", "file", "1")
			git.Run("branch", "side", git.Run("commit-tree", "-p", "HEAD", "-m", "two", "HEAD^{tree}"))
			step("two branches", Held{Commits: 2, Aside: 1})
			git.Write("new", "1")
			git.Write("lib/__pycache__/x.pyc", "1")
			snapshot()
			step("files, too", Held{Commits: 2, Aside: 1, Files: 1})
			if err := s.Push(t.Context(), w.ID, Work{Ref: "HEAD"}, "pushed", s.o.Outlet); err != nil {
				t.Fatal(err)
			}
			step("pushed from the host", Held{Commits: 1, Aside: 1, Files: 1})
			s.Deliver(w.ID, git.Run("rev-parse", "side"), "0123456789012345678901234567890123456789", "no id")
			step("pushed from inside", Held{Files: 1})
			mine := server.Client().In("mine-" + name)
			server.Client().Run("clone", "-q", repo.URL, mine.Dir)
			if _, err := s.Apply(t.Context(), w.ID, Work{Paths: []string{"new"}}, mine.Dir, ApplyStyle{}); err != nil {
				t.Fatal(err)
			}
			step("applied in part", Held{Files: 1})
			if _, err := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, ApplyStyle{}); err != nil {
				t.Fatal(err)
			}
			snapshot()
			step("applied", Held{})
			git.Write("new", "2")
			snapshot()
			step("and changed", Held{Files: 1})
			git.Run("add", "new")
			git.Run("commit", "-q", "-m", "three")
			git.Run("update-ref", "-d", WorkRef)
			step("and committed", Held{Commits: 1})
			git.Write("new", "3")
			git.Run("stash")
			step("and put aside", Held{Commits: 3, Aside: 2}) // a stash is a commit of the files, and one of the index
		})
	}
}
