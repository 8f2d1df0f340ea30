package repos

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestBorrows: a directory that borrows objects from another of the person's, which may borrow in turn, is taken as git
// reads it, and its sandbox needs neither of them then.
func TestBorrows(t *testing.T) {
	top := gittest.NewGit(t, t.TempDir())
	top.Run("init", "-q", "-b", "main", "all")
	all := top.In("all")
	all.Commit("first", "dir/f", "1")
	// Other people's places are borrowed from by a path beside the repository, too.
	top.Run("clone", "-q", "--shared", "all", "middle")
	middle := top.In("middle")
	middle.Write(".git/objects/info/alternates", "# of all\n\n../../../all/.git/objects\n")
	middle.Commit("second", "dir/f", "2")
	top.Run("clone", "-q", "--reference", "middle", "all", "mine")
	mine := top.In("mine")
	mine.Run("fetch", "-q", "../middle", "main")
	mine.Run("merge", "-q", "FETCH_HEAD")
	mine.Commit("third", "dir/f", "3")
	s := newStore(t, nil)
	var steps []string
	tell := func(step workspace.Step) { steps = append(steps, step.Text) }
	w, err := s.Create(t.Context(), ownSpec("w", workspace.Repository{Source: mine.Dir}), tell)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(steps, func(text string) bool {
		return strings.Contains(text, ", with objects of "+filepath.Join(middle.Dir, ".git/objects"))
	}) {
		t.Errorf("where the objects come from is not told: %q", steps)
	}
	mine.Write("dir/f", "4")
	mine.Write("new", "4")
	as := create(t, s, ownSpec("as", workspace.Repository{Source: mine.Dir, Uncommitted: true}))
	mine.Run("checkout", "-q", "-b", "feature")
	mine.Run("commit", "-q", "-a", "-m", "feature")
	feature := create(t, s, ownSpec("feature", workspace.Repository{Source: mine.Dir}))
	if _, err := s.Create(t.Context(), ownSpec("beside", workspace.Repository{Source: mine.Dir, Worktree: true}),
		nil); cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(cove.ErrorHint(err), "--worktree") {
		t.Errorf("a worktree: %v", err)
	}
	for _, dir := range []string{"all", "middle"} {
		if err := os.RemoveAll(top.In(dir).Dir); err != nil {
			t.Fatal(err)
		}
	}
	for want, w := range map[string]workspace.Workspace{"3": w, "4": as, "4 ": feature} {
		git := gittest.NewGit(t, w.Directory)
		git.Run("fsck", "--full")
		git.Run("log", "-1", "HEAD~2")
		if got := read(t, w.Directory, "dir/f"); got != strings.TrimSpace(want) {
			t.Errorf("%s begins with %q", w.Branch, got)
		}
		work := git.Commit("work", "work", "5")
		refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w))
		if err != nil || !slices.Contains(refs, Ref{"HEAD", work}) {
			t.Errorf("%v, %v", refs, err)
		}
	}
	if !exists(as.Directory, "new") {
		t.Error("it lacks a new file")
	}
}

// TestBorrowsNever: what a directory borrows is judged as the directory is: its author cannot choose another user's
// files, a place of credentials, or, from a sandbox, files of the person.
func TestBorrowsNever(t *testing.T) {
	top := gittest.NewGit(t, t.TempDir())
	top.Run("init", "-q", "-b", "main", "secret")
	secret := top.In("secret")
	id := secret.Commit("secret", "key", "key")
	s := newStore(t, nil)
	// evil is a directory whose objects, and those of the branch, are elsewhere.
	evil := func(name, objects string) gittest.Git {
		top.Run("init", "-q", "-b", "main", name)
		git := top.In(name)
		git.Write(".git/objects/info/alternates", objects+"\n")
		git.Write(".git/refs/heads/main", id+"\n")
		return git
	}
	refused := func(dir, why string) {
		t.Helper()
		for _, want := range []workspace.Repository{{}, {Uncommitted: true}, {Worktree: true}, {Depth: 1}} {
			want.Source = dir
			_, err := s.Create(t.Context(), ownSpec("x", want), nil)
			if cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), why) {
				t.Errorf("%+v: %v", want, err)
			}
		}
		if _, err := s.FetchMirror(t.Context(), owner, dir, false, nil); cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("%s: %v", dir, err)
		}
	}
	objects := filepath.Join(secret.Dir, ".git/objects")
	refused(evil("nowhere", filepath.Join(top.Dir, "not-there/.git/objects")).Dir, "which is not there")
	refused(evil("quoted", `"`+objects+`"`).Dir, "which is not there")

	hidden := filepath.Join(top.Dir, ".aws")
	if err := os.CopyFS(hidden, os.DirFS(secret.Dir)); err != nil {
		t.Fatal(err)
	}
	refused(evil("credentials", filepath.Join(hidden, ".git/objects")).Dir, "holds credentials")
	link := filepath.Join(top.Dir, "link")
	if err := os.Symlink(hidden, link); err != nil {
		t.Fatal(err)
	}
	refused(evil("a-link", filepath.Join(link, ".git/objects")).Dir, "holds credentials")
	refused(evil("in-turn", filepath.Join(evil("between", filepath.Join(hidden, ".git/objects")).Dir,
		".git/objects")).Dir, "holds credentials")

	linked := filepath.Join(top.Dir, "linked")
	if err := os.MkdirAll(linked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(objects, "pack"), filepath.Join(linked, "pack")); err != nil {
		t.Fatal(err)
	}
	refused(evil("links-among", linked).Dir, "symbolic links")

	// A checkout that was kept is a sandbox's.
	kept := create(t, s, ownSpec("kept", workspace.Repository{Source: secret.Dir}))
	if err := s.Remove(t.Context(), kept.ID, true); err != nil {
		t.Fatal(err)
	}
	refused(evil("of-a-sandbox", filepath.Join(kept.Directory, ".git/objects")).Dir, "belongs to a sandbox")
	of := gittest.NewGit(t, kept.Directory)
	of.Write(".git/objects/info/alternates", objects+"\n")
	refused(of.Dir, "belongs to a sandbox")

	t.Run("another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root makes files of another user")
		}
		give := func(dir string) {
			if out, err := exec.Command("chown", "-R", "12345:12345", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		theirs := evil("theirs", objects)
		give(theirs.Dir)
		refused(theirs.Dir, "belongs to another user")
		give(secret.Dir)
		w := create(t, s, ownSpec("theirs", workspace.Repository{Source: theirs.Dir}))
		if read(t, w.Directory, "key") != "key" {
			t.Error("it lacks a file")
		}
	})
}
