package repos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// history makes a repository on a server with changed files, and returns the ids of their contents by "NAME@COMMIT",
// oldest commit first.
func history(t *testing.T, server *gittest.Server) (*gittest.Repository, map[string]string) {
	t.Helper()
	repo := server.Create("project.git")
	work := server.Client()
	work.Run("clone", "-q", repo.URL, ".")
	long := strings.Repeat("one line of many\n", 2000)
	work.Commit("old", "a/file", "a, old\n", "a/other", "other\n", "b/deep/file", "b, old\n"+long, "b/side", "side, old\n",
		"c/file", "c\n")
	work.Commit("new", "a/file", "a, new\n", "b/deep/file", "b, new\n"+long, "b/side", "side, new\n")
	work.Run("push", "-q", "origin", "main")
	ids := map[string]string{}
	for _, at := range []string{"HEAD~1", "HEAD"} {
		for _, name := range []string{"README", "a/file", "a/other", "b/deep/file", "b/side", "c/file"} {
			ids[name+"@"+at] = work.Run("rev-parse", at+":"+name)
		}
	}
	return repo, ids
}

// here returns the contents of history that a directory has or borrows, without fetching.
func here(t *testing.T, git gittest.Git, ids map[string]string) []string {
	t.Helper()
	found := map[string]bool{}
	for name, id := range ids {
		if git.With("GIT_NO_LAZY_FETCH=1").Try("cat-file", "-e", id).Code == 0 {
			found[name] = true
		}
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestPartial: contents are fetched once, at their first checkout. Other contents are fetched inside on demand, and
// work on them can be imported.
func TestPartial(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo, ids := history(t, server)
	s := newStore(t, server)
	if m, err := s.FetchMirror(t.Context(), ci, repo.URL, true, nil); err != nil || !m.Partial {
		t.Fatalf("%+v, %v", m, err)
	}
	mirror := gittest.NewGit(t, s.mirror(keyOf(t, repo.URL)).dir)
	if got := here(t, mirror, ids); got != nil {
		t.Errorf("the mirror begins with %q", got)
	}

	sparse := create(t, s, spec("sparse", workspace.Repository{Source: repo.URL, Sparse: []string{"a"}}))
	if got, want := here(t, mirror, ids), []string{"README@HEAD", "README@HEAD~1", "a/file@HEAD", "a/other@HEAD",
		"a/other@HEAD~1"}; !slices.Equal(got, want) {
		t.Errorf("of a sparse checkout the mirror has %q, not %q", got, want)
	}
	if names(t, sparse.Directory) != ".git README a" {
		t.Errorf("checked out is %s", names(t, sparse.Directory))
	}
	whole := create(t, s, spec("whole", workspace.Repository{Source: repo.URL}))
	want := []string{"README@HEAD", "README@HEAD~1", "a/file@HEAD", "a/other@HEAD", "a/other@HEAD~1", "b/deep/file@HEAD",
		"b/side@HEAD", "c/file@HEAD", "c/file@HEAD~1"}
	if got := here(t, mirror, ids); !slices.Equal(got, want) {
		t.Errorf("of a checkout the mirror has %q, not %q", got, want)
	}
	server.Forget()
	create(t, s, spec("again", workspace.Repository{Source: repo.URL}))
	for _, r := range server.Received() {
		if strings.HasSuffix(r.Path, "git-upload-pack") && r.Body > 1000 {
			t.Errorf("what is there is asked for again: %v", r)
		}
	}

	git := server.Client().In(whole.Directory)
	if git.Run("status", "--porcelain") != "" || git.Run("rev-parse", "--abbrev-ref", "HEAD") != whole.Branch {
		t.Errorf("it is not clean")
	}
	git.With("GIT_NO_LAZY_FETCH=1").Run("log", "--stat", "-1", "--format=%s", "--no-renames", "--name-only")
	if got := git.Run("log", "-p", "--all"); !strings.Contains(got, "+side, old") {
		t.Errorf("older contents do not come: %s", got)
	}
	git.Run("fsck", "--full")

	// The work builds on objects that only the sandbox has.
	inside, connect := server.Client().In(sparse.Directory), inside(t, sparse)
	inside.Run("checkout", "-q", "-b", "fix", "HEAD~1")
	inside.Run("sparse-checkout", "add", "b/deep")
	fixed := inside.Commit("fix", "b/deep/file", read(t, sparse.Directory, "b/deep/file")+"fixed\n")
	inside.Run("update-index", "--add", "--cacheinfo", "100644,"+ids["c/file@HEAD"]+",moved")
	inside.Run("commit", "-q", "-m", "moved")
	refs, err := s.Import(t.Context(), sparse.ID, 0, connect)
	if err != nil || len(refs) != 3 {
		t.Fatalf("%v, %v", refs, err)
	}
	var diff, log bytes.Buffer
	if err := errors.Join(s.Diff(t.Context(), sparse.ID, Work{}, DiffStyle{}, &diff),
		s.Log(t.Context(), sparse.ID, Work{}, false, &log)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"+fixed\n", "-b, new\n", "+b, old\n", "+side, old\n", "similarity index 100%"} {
		if !strings.Contains(diff.String(), line) && !(strings.HasPrefix(line, "sim") &&
			strings.Contains(diff.String(), "+c\n")) {
			t.Errorf("the difference lacks %q: %s", line, &diff)
		}
	}
	if !strings.Contains(log.String(), fixed) {
		t.Errorf("the log is %s", &log)
	}
	if err := s.Push(t.Context(), sparse.ID, Work{Ref: "HEAD"}, "fix", s.o.Outlet); err != nil {
		t.Fatal(err)
	}
	if got := repo.Run("show", "fix:b/side"); got != "side, old" {
		t.Errorf("pushed is %q", got)
	}
	repo.Run("fsck", "--full")
}

// TestPartialNever: unreadable objects are never fetched, whatever work refers to.
func TestPartialNever(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo, _ := history(t, server)
	hidden := repo.RunWith("hidden\n", "hash-object", "-w", "--stdin")
	repo.Run("update-ref", "refs/hidden/x", repo.Run("commit-tree", "-m", "x",
		repo.RunWith("100644 blob "+hidden+"\tx\n", "mktree")))
	s := newStore(t, server)
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, true, nil); err != nil {
		t.Fatal(err)
	}
	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	git := server.Client("GIT_NO_LAZY_FETCH=1").In(w.Directory)
	git.Run("update-index", "--add", "--cacheinfo", "100644,"+hidden+",x")
	tree := git.Run("write-tree", "--missing-ok")
	git.Run("update-ref", "HEAD", git.Run("commit-tree", "-p", "HEAD", "-m", "x", tree))
	if _, err := s.Import(t.Context(), w.ID, 0, inside(t, w, "GIT_NO_LAZY_FETCH=1")); err == nil {
		var diff bytes.Buffer
		if err := s.Diff(t.Context(), w.ID, Work{}, DiffStyle{}, &diff); err == nil ||
			strings.Contains(diff.String(), "hidden") {
			t.Errorf("what is hidden is shown: %s", &diff)
		}
	}
	if got := here(t, gittest.NewGit(t, s.ImportDirectory(w.ID)), map[string]string{"hidden": hidden}); got != nil {
		t.Errorf("what is hidden was fetched")
	}
}

// TestPartialKept: a partial mirror keeps all commits and trees through fetches and repacking.
func TestPartialKept(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo, ids := history(t, server)
	s := newStore(t, server)
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, true, nil); err != nil {
		t.Fatal(err)
	}
	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	m := s.mirror(keyOf(t, repo.URL))
	mirror := gittest.NewGit(t, m.dir)
	had := here(t, mirror, ids)
	for i := range tooManyPacks + 3 {
		repo.Branch(fmt.Sprintf("release/%d", i), "main")
		if _, err := s.FetchMirror(t.Context(), ci, repo.URL, i%2 == 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if packs, err := filepath.Glob(filepath.Join(m.dir, "objects/pack/*.pack")); err != nil || len(packs) > 5 {
		t.Errorf("%d packs, %v", len(packs), err)
	}
	for _, borrowed := range []bool{true, false} {
		if !borrowed {
			if err := s.Remove(t.Context(), w.ID, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CollectMirror(t.Context(), ci, repo.URL); err != nil {
			t.Fatal(err)
		}
		if got := here(t, mirror, ids); !slices.Equal(got, had) {
			t.Errorf("borrowed %v: the mirror has %q, not %q", borrowed, got, had)
		}
		if marks, err := filepath.Glob(filepath.Join(m.dir, "objects/pack/*.promisor")); err != nil || len(marks) == 0 {
			t.Errorf("borrowed %v: the packs do not say that they leave something out: %v", borrowed, err)
		}
	}
	create(t, s, spec("y", workspace.Repository{Source: repo.URL}))
	config, err := os.ReadFile(filepath.Join(m.dir, "config"))
	if err != nil || strings.Contains(string(config), "remote") {
		t.Errorf("the mirror's configuration is %s, %v", config, err)
	}
}

// TestPartialOtherwise covers other starts, and refusals.
func TestPartialOtherwise(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo, _ := history(t, server)
	repo.Branch("private", "main~1")
	s := newStore(t, server)
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, true, nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]workspace.Repository{"a branch of its own": {From: "private"},
		"an older commit": {From: repo.Run("rev-parse", "main~1")}, "shallow": {Depth: 1}} {
		r.Source = repo.URL
		w := create(t, s, spec("x", r))
		git := server.Client().In(w.Directory)
		if git.Run("status", "--porcelain") != "" {
			t.Errorf("%s is not clean", name)
		}
		id := git.Commit("more", "a/file", "more\n")
		if refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w)); err != nil || !slices.Contains(refs, Ref{"HEAD", id}) {
			t.Errorf("%s: %v, %v", name, refs, err)
		}
		git.Run("fsck", "--full")
	}
	mirror := gittest.NewGit(t, s.mirror(keyOf(t, repo.URL)).dir)
	if mirror.With("GIT_NO_LAZY_FETCH=1").Try("cat-file", "-e", repo.Run("rev-parse", "private:private")).Code == 0 {
		t.Error("the mirror has what is not for everybody")
	}
	if _, err := s.Create(t.Context(), spec("x", workspace.Repository{Source: repo.URL, Worktree: true}),
		nil); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a worktree: %v", err)
	}

	// A finding that is harmless elsewhere: git before 2.44 cannot ignore it for a filtered fetch.
	odd := server.Create("odd.git")
	commit := odd.RunWith("tree "+odd.Run("rev-parse", "main^{tree}")+
		"\nauthor a <a@b> 1 +051800\ncommitter a <a@b> 1 +051800\n\nodd\n", "hash-object", "-w", "-t", "commit",
		"--literally", "--stdin")
	odd.Run("update-ref", "refs/heads/main", commit)
	if _, err := s.FetchMirror(t.Context(), ci, odd.URL, true, nil); err != nil &&
		!strings.Contains(cove.ErrorHint(err), "--partial") {
		t.Errorf("an odd commit: %v", err)
	}
	if _, err := s.FetchMirror(t.Context(), ci, odd.URL, false, nil); err != nil {
		t.Errorf("an odd commit, whole: %v", err)
	}

	other := server.Create("whole.git")
	if _, err := s.FetchMirror(t.Context(), ci, other.URL, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FetchMirror(t.Context(), ci, other.URL, true, nil); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("one that is there whole: %v", err)
	}
	if _, err := s.FetchMirror(t.Context(), owner, other.Dir, true, nil); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a directory: %v", err)
	}
	plain := server.Create("plain.git")
	plain.Run("config", "uploadpack.allowFilter", "false")
	var steps []string
	m, err := s.FetchMirror(t.Context(), ci, plain.URL, true, func(p workspace.Step) { steps = append(steps, p.Text) })
	if err != nil || m.Partial || !slices.Contains(steps, "the remote gives its repository whole or not at all") {
		t.Errorf("a remote that cannot: %+v, %v, %q", m, err, steps)
	}
	w := create(t, s, spec("x", workspace.Repository{Source: plain.URL, Worktree: true}))
	if _, err := os.Stat(filepath.Join(w.Directory, "README")); err != nil {
		t.Error(err)
	}
}

func TestInCone(t *testing.T) {
	for _, c := range []struct {
		file   string
		sparse string
		want   bool
	}{
		{"x/y", "", true}, {"README", "a", true}, {"a/x", "a", true}, {"a/b/x", "a", true}, {"ab/x", "a", false},
		{"b/x", "a", false},
		{"a/x", "a/b/c", true}, {"a/b/x", "a/b/c", true}, {"a/b/c/d/x", "a/b/c/", true}, {"a/d/x", "a/b/c", false},
		{"b/x", "a b", true},
	} {
		if got := inCone(c.file, strings.Fields(c.sparse)); got != c.want {
			t.Errorf("%s, of %q: %v", c.file, c.sparse, got)
		}
	}
}
