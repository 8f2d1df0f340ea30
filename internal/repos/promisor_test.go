package repos

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestPartialClone: a directory that lacks objects is taken with those that it has, such as commits that nobody else
// has. What else a checkout needs comes from the address that the directory was cloned from, and nothing more.
func TestPartialClone(t *testing.T) {
	for name, filter := range map[string][]string{
		"without contents": {"--filter=blob:none"},
		"without trees":    {"--filter=tree:0"},
		"small contents":   {"--filter=blob:limit=1k"},
		"last commits":     {"--filter=blob:none", "--depth=1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := gittest.Start(t, gittest.Options{Names: []string{policy.HostService}})
			repo, ids := history(t, server)
			mine := server.Client()
			mine.Run(append(append([]string{"clone", "-q", "--no-checkout"}, filter...), repo.URL, "mine")...)
			mine = mine.In("mine")
			mine.Run("sparse-checkout", "set", "a")
			mine.Run("checkout", "-q", "main")
			url := server.URLAt(policy.HostService, "project.git") // not localhost, which no sandbox reaches
			mine.Run("remote", "set-url", "origin", url)
			local := mine.Commit("local", "a/file", "a, local\n", "a/local", "local\n")
			s := open(t, Options{Home: t.TempDir(), Outlet: named{server}})
			server.Forget()

			sparse := create(t, s, ownSpec("sparse", workspace.Repository{Source: mine.Dir, Sparse: []string{"a"}}))
			if got := server.Received(); filter[0] == "--filter=blob:none" && len(got) > 0 {
				t.Errorf("what the directory has is fetched: %v", got)
			}
			mine.Write("a/new", "new\n")
			mine.Write("a/file", "a, newer\n")
			create(t, s, ownSpec("both", workspace.Repository{Source: mine.Dir, Sparse: []string{"a"}, Uncommitted: true}))
			narrow := gittest.NewGit(t, sparse.Directory)
			narrow.Run("update-index", "--force-remove", "b/side") // whose contents are nowhere yet
			narrow.Run("commit", "-q", "-m", "removed")
			if _, err := s.Import(t.Context(), sparse.ID, 0, inside(t, sparse)); err != nil {
				t.Fatal(err)
			}
			var removed bytes.Buffer
			if err := s.Diff(t.Context(), sparse.ID, Work{Ref: "HEAD"}, DiffStyle{}, &removed); err != nil ||
				!strings.Contains(removed.String(), "-side, new\n") {
				t.Errorf("%v: %s", err, &removed)
			}
			whole := create(t, s, ownSpec("whole", workspace.Repository{Source: mine.Dir, Uncommitted: true}))
			mine.Run("checkout", "-q", "-b", "feature")
			mine.Run("add", "-A")
			mine.Run("commit", "-q", "-m", "feature")
			feature := create(t, s, ownSpec("feature", workspace.Repository{Source: mine.Dir}))
			for w, text := range map[*workspace.Workspace]string{&sparse: "a, local\n", &whole: "a, newer\n",
				&feature: "a, newer\n"} {
				if w.Remote != url || read(t, w.Directory, "a/file") != text {
					t.Errorf("%s: pushes to %q, with %q", w.Branch, w.Remote, read(t, w.Directory, "a/file"))
				}
				git := gittest.NewGit(t, w.Directory)
				git.Run("fsck", "--full")
				if got := git.Run("merge-base", "HEAD", local); got != local {
					t.Errorf("%s: the person's commit is not there", w.Branch)
				}
			}
			for _, dir := range []string{whole.Directory, feature.Directory} {
				if read(t, dir, "b/side") != "side, new\n" || read(t, dir, "a/new") != "new\n" {
					t.Errorf("files are missing")
				}
			}
			mirror := gittest.NewGit(t, s.mirror(keyOfDirectory(filepath.Join(mine.Dir, ".git"))).dir)
			if got := here(t, mirror, ids); filter[0] == "--filter=blob:none" && slices.Contains(got, "b/side@HEAD~1") {
				t.Errorf("what nothing has asked for is fetched: %q", got)
			}

			// Others have pushed meanwhile, and the work goes on top of what the sandbox knows.
			other := server.Client().In("other")
			server.Client().Run("clone", "-q", repo.URL, other.Dir)
			other.Commit("other", "other", "other\n")
			other.Run("push", "-q", "origin", "main")
			inner := gittest.NewGit(t, whole.Directory)
			inner.Commit("work", "b/side", "side, work\n", "c/moved", read(t, whole.Directory, "c/file")+"\n")
			if _, err := s.Import(t.Context(), whole.ID, 0, inside(t, whole)); err != nil {
				t.Fatal(err)
			}
			var diff bytes.Buffer
			if err := s.Diff(t.Context(), whole.ID, Work{}, DiffStyle{}, &diff); err != nil ||
				!strings.Contains(diff.String(), "-side, new\n+side, work\n") {
				t.Errorf("%v: %s", err, &diff)
			}
			if filter[len(filter)-1] != "--depth=1" {
				if err := s.Push(t.Context(), whole.ID, Work{Ref: "HEAD"}, "work", s.o.Outlet); err != nil {
					t.Fatal(err)
				}
				if got := repo.Run("show", "work:b/side") + repo.Run("show", "work:a/local"); got != "side, worklocal" {
					t.Errorf("pushed is %q", got)
				}
				repo.Run("fsck", "--full")
			}
			if err := s.CollectMirror(t.Context(), owner, mine.Dir); err != nil {
				t.Error(err)
			}
			mirror.Run("cat-file", "-e", local+":a/local")
		})
	}
}

// TestPartialCloneRefused: a directory that lacks contents which no address has is refused in words, and taken once it
// has them, as the hint says. Nor does it end without the server when that does not answer.
func TestPartialCloneRefused(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main", "all")
	git.In("all").Run("config", "uploadpack.allowFilter", "true")
	for _, text := range []string{"one", "two"} {
		git.In("all").Commit(text, "file", text)
	}
	git.Run("clone", "-q", "--filter=blob:none", "file://"+git.In("all").Dir, "mine")
	mine, s := git.In("mine"), newStore(t, nil)
	git.Run("clone", "-q", "--shared", "--no-checkout", mine.Dir, "shared")
	for _, dir := range []string{mine.Dir, git.In("shared").Dir} {
		_, err := s.Create(t.Context(), ownSpec("x", workspace.Repository{Source: dir}), nil)
		if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "is a partial clone") {
			t.Fatal(err)
		}
	}
	origin := mine.Run("config", "remote.origin.url")
	mine.Run("remote", "set-url", "origin", "https://git.example/all.git")
	if err := os.Remove(filepath.Join(mine.Dir, "file")); err != nil {
		t.Fatal(err)
	}
	mine.Run("update-ref", "--no-deref", "HEAD", "HEAD~") // whose file has not been fetched
	_, err := s.Create(t.Context(), ownSpec("x", workspace.Repository{Source: mine.Dir}), nil)
	if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(cove.ErrorHint(err), "--refetch") {
		t.Fatal(err)
	}
	mine.Run("update-ref", "HEAD", "origin/main")
	mine.Run("remote", "set-url", "origin", origin)
	mine.Run("-c", "gc.auto=0", "fetch", "-q", "--refetch", "--no-filter")
	w := create(t, s, ownSpec("y", workspace.Repository{Source: mine.Dir}))
	gittest.NewGit(t, w.Directory).Run("fsck", "--no-dangling")
}

// TestPartialCloneOtherwise covers other checkouts of a directory that lacks contents, and its changes.
func TestPartialCloneOtherwise(t *testing.T) {
	server := gittest.Start(t, gittest.Options{Names: []string{policy.HostService}})
	repo, _ := history(t, server)
	server.Client().Run("clone", "-q", "--mirror", repo.URL, filepath.Join(server.Root, "moved.git"))
	gittest.NewGit(t, filepath.Join(server.Root, "moved.git")).Run("config", "uploadpack.allowFilter", "true")
	mine := server.Client()
	mine.Run("clone", "-q", "--filter=blob:none", repo.URL, "mine")
	mine = mine.In("mine")
	mine.Run("remote", "set-url", "origin", server.URLAt(policy.HostService, "project.git"))
	s := open(t, Options{Home: t.TempDir(), Outlet: named{server}})
	sound := func(name string, want workspace.Repository) {
		t.Helper()
		want.Source = mine.Dir
		w := create(t, s, ownSpec(name, want))
		git := gittest.NewGit(t, w.Directory)
		work := git.Commit(name, "work", name)
		refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w))
		if err != nil || !slices.Contains(refs, Ref{"HEAD", work}) {
			t.Errorf("%s: %v, %v", name, refs, err)
		}
	}
	// What is checked out is there, and more is not fetched into the person's own repository.
	sound("beside", workspace.Repository{Worktree: true})
	sound("last", workspace.Repository{Depth: 1})
	before := mine.Run("for-each-ref")
	for name, want := range map[string]workspace.Repository{"old": {Worktree: true, From: mine.Run("rev-parse", "HEAD~")},
		"deep": {Depth: 2}} {
		want.Source = mine.Dir
		_, err := s.Create(t.Context(), ownSpec(name, want), nil)
		if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(cove.ErrorHint(err), "go without it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := mine.Run("for-each-ref"); after != before {
		t.Errorf("the refs were\n%s\nand are\n%s", before, after)
	}
	sound("old", workspace.Repository{From: mine.Run("rev-parse", "HEAD~")})

	// The origin moves, and in the end the person has everything.
	repo.Run("update-ref", "-d", "refs/heads/main")
	mine.Run("remote", "set-url", "origin", server.URLAt(policy.HostService, "moved.git"))
	sound("moved", workspace.Repository{From: mine.Run("rev-parse", "HEAD~2")})
	moved := server.URL("moved.git")
	mine.Run("remote", "set-url", "origin", moved)
	mine.Run("-c", "gc.auto=0", "fetch", "-q", "--refetch", "--no-filter")
	mine.Run("config", "--unset", "remote.origin.promisor")
	if err := os.RemoveAll(filepath.Join(server.Root, "moved.git")); err != nil {
		t.Fatal(err)
	}
	sound("whole", workspace.Repository{})
	sound("whole-old", workspace.Repository{From: mine.Run("rev-parse", "HEAD~")})
}

// TestPartialCloneChecked: the objects of a directory that lacks others are checked: findings that are harmless
// elsewhere are so there, with any git, and a tree that no git makes is refused.
func TestPartialCloneChecked(t *testing.T) {
	server := gittest.Start(t, gittest.Options{Names: []string{policy.HostService}})
	repo, _ := history(t, server)
	odd := repo.RunWith("tree "+repo.Run("rev-parse", "main^{tree}")+"\nparent "+repo.Run("rev-parse", "main")+
		"\nauthor a <a@b> 1 +051800\ncommitter a <a@b> 1 +051800\n\nodd\n", "hash-object", "-w", "-t", "commit",
		"--literally", "--stdin")
	repo.Run("update-ref", "refs/heads/main", odd)
	mine := server.Client()
	mine.Run("clone", "-q", "--filter=blob:none", repo.URL, "mine")
	mine = mine.In("mine")
	mine.Run("remote", "set-url", "origin", server.URLAt(policy.HostService, "project.git"))
	s := open(t, Options{Home: t.TempDir(), Outlet: named{server}})
	w := create(t, s, ownSpec("odd", workspace.Repository{Source: mine.Dir}))
	if w.Base != odd || read(t, w.Directory, "b/side") != "side, new\n" {
		t.Errorf("it begins at %s", w.Base)
	}
	evil := mine.RunWith("100644 blob "+mine.Run("rev-parse", "HEAD:c/file")+"\t.git\n", "mktree")
	mine.Run("update-ref", "refs/heads/main", mine.Run("commit-tree", "-p", "HEAD", "-m", "evil", evil))
	another := open(t, Options{Home: t.TempDir(), Outlet: named{server}}) // which has to take both
	for _, s := range []*Store{s, another} {
		_, err := s.Create(t.Context(), ownSpec("evil", workspace.Repository{Source: mine.Dir}), nil)
		if hostgit.ExitCode(err) <= 0 || !strings.Contains(err.Error(), "hasDotgit") {
			t.Errorf("a tree with a .git: %v", err)
		}
	}
	mine.Run("update-ref", "refs/heads/main", odd)
	evil = mine.Run("commit-tree", "-p", "HEAD", "-m", "evil", evil)
	mine.Run("checkout", "-q", "-b", "feature")
	_, err := s.Create(t.Context(), ownSpec("evil", workspace.Repository{Source: mine.Dir, From: evil}), nil)
	if hostgit.ExitCode(err) <= 0 || !strings.Contains(err.Error(), "hasDotgit") {
		t.Errorf("a branch with a .git: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.o.Home, "taken-*")); err != nil || len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}
