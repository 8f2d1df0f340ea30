package repos

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// project returns a person's repository with one commit.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	plain(t, dir, "init", "-q", "-b", "main")
	for _, name := range []string{"kept", "changed", "removed", "staged", "becomes"} {
		put(t, dir, name, "as committed\n")
	}
	put(t, dir, ".gitignore", "*.log\n")
	plain(t, dir, "add", "-A")
	plain(t, dir, "commit", "-q", "-m", "one")
	return dir
}

// plain runs a person's git in a directory.
func plain(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.example"}, args...)...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func got(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err.Error()[strings.LastIndex(err.Error(), ": ")+2:]
	}
	return strings.TrimSpace(string(data))
}

// stir changes a project in every way that git distinguishes.
func stir(t *testing.T, dir string) {
	t.Helper()
	put(t, dir, "changed", "not committed\n")
	put(t, dir, "staged", "staged\n")
	plain(t, dir, "add", "staged")
	put(t, dir, "new/file", "new\n")
	put(t, dir, "noise.log", "ignored\n")
	put(t, dir, ".git/info/exclude", "private\n")
	put(t, dir, "private", "ignored, too\n")
	for _, name := range []string{"removed", "becomes"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, dir, "becomes/a-directory", "yes\n")
	if err := os.Chmod(filepath.Join(dir, "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

func uncommitted(dir string) *workspace.Repository {
	return &workspace.Repository{Source: dir, Uncommitted: true}
}

// TestUncommitted: a sandbox begins at the person's files, and the person's repository does not change.
func TestUncommitted(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	stir(t, dir)
	before := plain(t, dir, "status", "--porcelain=v2", "--branch") + plain(t, dir, "count-objects", "-v") +
		got(t, dir, ".git/index")
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
		Repository: uncommitted(dir)})
	if after := plain(t, dir, "status", "--porcelain=v2", "--branch") + plain(t, dir, "count-objects", "-v") +
		got(t, dir, ".git/index"); after != before {
		t.Errorf("the person's repository was changed:\n%s\n%s", before, after)
	}
	for name, want := range map[string]string{
		"changed": "not committed", "staged": "staged", "new/file": "new", "becomes/a-directory": "yes",
		"kept":    "as committed",
		"removed": "no such file or directory", "noise.log": "no such file or directory",
		"private": "no such file or directory",
	} {
		if g := got(t, w.Directory, name); g != want {
			t.Errorf("%s: %q, want %q", name, g, want)
		}
	}
	if to, err := os.Readlink(filepath.Join(w.Directory, "link")); err != nil || to != "/etc/passwd" {
		t.Errorf("the link: %q, %v", to, err)
	}
	if info, err := os.Stat(filepath.Join(w.Directory, "kept")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the file that can be run now: %v, %v", info, err)
	}
	if out := plain(t, w.Directory, "status", "--porcelain"); out != "" {
		t.Errorf("it begins with changes:\n%s", out)
	}
	if head, base := plain(t, w.Directory, "rev-parse", "HEAD"), plain(t, dir, "rev-parse", "HEAD"); head != w.Base ||
		plain(t, w.Directory, "rev-parse", "HEAD^") != base {
		t.Errorf("it begins at %s, based on %s, and its record says %s", head, base, w.Base)
	}
	plain(t, w.Directory, "fsck", "--full", "--strict")

	// Only later changes return.
	put(t, w.Directory, "changed", "by the sandbox\n")
	plain(t, w.Directory, "commit", "-qam", "two")
	if out := plain(t, w.Directory, "diff", "--name-only", w.Base, "HEAD"); out != "changed" {
		t.Errorf("what came after: %s", out)
	}
}

// TestUncommittedFiltered: a person's filter does not run, and what git needs it for stays as committed: a large
// file's pointer is no content, and what is encrypted is not shown. Line ends are as the person's git would store them.
func TestUncommittedFiltered(t *testing.T) {
	s := newStore(t, nil)
	dir, home := project(t), t.TempDir()
	t.Setenv("HOME", home)
	ran := filepath.Join(home, "ran")
	put(t, home, "filter", "#!/bin/sh\ntouch "+ran+"\ncat\n")
	if err := os.Chmod(filepath.Join(home, "filter"), 0o755); err != nil {
		t.Fatal(err)
	}
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 1\n"
	put(t, dir, ".gitattributes", "*.bin filter=lfs -text\n*.key filter=crypt\n*.none filter=unknown\n")
	for name, content := range map[string]string{"a.bin": pointer, "gone.bin": pointer, "a.key": "sealed\n",
		"a.none": "1\n", "lines": "1\n2\n"} {
		put(t, dir, name, content)
	}
	plain(t, dir, "add", "-A")
	plain(t, dir, "commit", "-qm", "filtered")
	put(t, home, ".gitconfig", "[filter \"lfs\"]\n\tprocess = "+home+"/filter\n\trequired\n[core]\n\tautocrlf = input\n")
	plain(t, dir, "config", "filter.crypt.clean", home+"/filter")
	plain(t, dir, "config", "filter.crypt.required", "true")
	plain(t, dir, "config", "filter.unknown.clean", home+"/filter")
	other := strings.ReplaceAll(pointer, "0", "1")
	for name, content := range map[string]string{"a.bin": "content", "new.bin": "content", "pointer.bin": other,
		"a.key": "open\n", "new.key": "open\n", "a.none": "2\n", "lines": "1\r\n2\r\n3\r\n"} {
		put(t, dir, name, content)
	}
	if err := os.Remove(filepath.Join(dir, "gone.bin")); err != nil {
		t.Fatal(err)
	}
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
		Repository: uncommitted(dir)})
	for name, want := range map[string]string{"a.bin": strings.TrimSpace(pointer),
		"pointer.bin": strings.TrimSpace(other), "a.key": "sealed", "a.none": "2", "lines": "1\n2\n3",
		"new.bin": "no such file or directory", "new.key": "no such file or directory",
		"gone.bin": "no such file or directory",
	} {
		if g := got(t, w.Directory, name); g != want {
			t.Errorf("%s: %q, want %q", name, g, want)
		}
	}
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a filter has run")
	}
}

func TestUncommittedWhereEverythingIs(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
		Repository: uncommitted(dir)})
	if head := plain(t, dir, "rev-parse", "HEAD"); w.Base != head {
		t.Errorf("it begins at %s and not at %s", w.Base, head)
	}
}

// TestUncommittedOdd: unusual indexes that cannot be used directly.
func TestUncommittedOdd(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) string // the source
		want map[string]string
	}{
		{"a conflict", func(t *testing.T, dir string) string {
			plain(t, dir, "checkout", "-q", "-b", "other")
			put(t, dir, "changed", "theirs\n")
			plain(t, dir, "commit", "-qam", "theirs")
			plain(t, dir, "checkout", "-q", "main")
			put(t, dir, "changed", "ours\n")
			plain(t, dir, "commit", "-qam", "ours")
			if out, err := exec.Command("git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.example", "merge",
				"other").CombinedOutput(); err == nil {
				t.Fatalf("there is no conflict: %s", out)
			}
			return dir
		}, map[string]string{"changed": "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> other", "kept": "as committed"}},
		{"a split index", func(t *testing.T, dir string) string {
			plain(t, dir, "update-index", "--split-index")
			put(t, dir, "changed", "split\n")
			return dir
		}, map[string]string{"changed": "split"}},
		{"a broken index", func(t *testing.T, dir string) string {
			put(t, dir, ".git/index", "DIRC and no more")
			put(t, dir, "changed", "broken\n")
			return dir
		}, map[string]string{"changed": "broken", "kept": "as committed"}},
		{"no index", func(t *testing.T, dir string) string {
			if err := os.Remove(filepath.Join(dir, ".git/index")); err != nil {
				t.Fatal(err)
			}
			return dir
		}, map[string]string{"kept": "as committed"}},
		{"no commit", func(t *testing.T, _ string) string {
			dir := t.TempDir()
			plain(t, dir, "init", "-q", "-b", "main")
			put(t, dir, "first", "file\n")
			return dir
		}, map[string]string{"first": "file"}},
		{"a directory below", func(t *testing.T, dir string) string {
			put(t, dir, "below/file", "below\n")
			put(t, dir, "changed", "above\n")
			return filepath.Join(dir, "below")
		}, map[string]string{"below/file": "below", "changed": "above"}},
		{"another worktree", func(t *testing.T, dir string) string {
			tree := filepath.Join(t.TempDir(), "tree")
			plain(t, dir, "worktree", "add", "-q", "-b", "side", tree)
			put(t, dir, "changed", "not this\n")
			put(t, tree, "changed", "in the worktree\n")
			return tree
		}, map[string]string{"changed": "in the worktree"}},
		{"no repository", func(t *testing.T, _ string) string {
			dir := t.TempDir()
			put(t, dir, "a/b", "plain\n")
			put(t, dir, ".gitignore", "secret\n")
			put(t, dir, "secret", "no\n")
			return dir
		}, map[string]string{"a/b": "plain", "secret": "no such file or directory"}},
		{"an empty directory", func(t *testing.T, _ string) string {
			return t.TempDir()
		}, map[string]string{"anything": "no such file or directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, nil)
			source := c.make(t, project(t))
			w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
				Repository: uncommitted(source)})
			for name, want := range c.want {
				if g := got(t, w.Directory, name); g != want {
					t.Errorf("%s: %q, want %q", name, g, want)
				}
			}
			if out := plain(t, w.Directory, "status", "--porcelain"); out != "" ||
				w.Base != plain(t, w.Directory, "rev-parse", "HEAD") {
				t.Errorf("base %s, status %s", w.Base, out)
			}
		})
	}
}

// TestUncommittedRunsNothing: neither the person's repository nor a nested one starts a program.
func TestUncommittedRunsNothing(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	trap := filepath.Join(t.TempDir(), "sprung")
	script := filepath.Join(t.TempDir(), "trap")
	put(t, filepath.Dir(script), "trap", "#!/bin/sh\necho \"$0 $*\" >> "+trap+"\ncat\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	arm := func(dir string) {
		for _, key := range []string{"core.fsmonitor", "core.hooksPath", "filter.x.clean", "filter.x.process",
			"diff.external", "core.pager", "core.sshCommand"} {
			plain(t, dir, "config", key, script)
		}
	}
	inner := filepath.Join(dir, "inner")
	plain(t, dir, "init", "-q", "-b", "main", inner)
	put(t, inner, "file", "x\n")
	plain(t, inner, "add", "file")
	plain(t, inner, "commit", "-q", "-m", "inner")
	plain(t, dir, "add", "inner") // a submodule without a name
	plain(t, dir, "commit", "-q", "-m", "with a submodule")
	put(t, dir, ".gitattributes", "* filter=x\n")
	put(t, inner, "file", "changed\n")
	put(t, dir, "changed", "to be cleaned\n")
	arm(inner)
	arm(dir)
	if exec.Command("git", "-C", dir, "status").Run(); got(t, filepath.Dir(trap),
		"sprung") == "no such file or directory" {
		t.Fatal("the trap does not work: an ordinary git does not spring it")
	}
	if err := os.Remove(trap); err != nil {
		t.Fatal(err)
	}
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
		Repository: uncommitted(dir)})
	if g := got(t, filepath.Dir(trap), "sprung"); g != "no such file or directory" {
		t.Errorf("a program ran: %s", g)
	}
	if g := got(t, w.Directory, "changed"); g != "to be cleaned" {
		t.Errorf("%q", g)
	}
}

func TestUncommittedRefuses(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	bare := filepath.Join(t.TempDir(), "bare.git")
	plain(t, dir, "clone", "-q", "--bare", dir, bare)
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		name string
		r    workspace.Repository
		code cove.Code
	}{
		{"an address", workspace.Repository{Source: "https://git.example/a/b.git", Uncommitted: true},
			cove.InvalidArgument},
		{"another account's directory", workspace.Repository{Source: dir, Uncommitted: true}, cove.Forbidden},
		{"another beginning", workspace.Repository{Source: dir, Uncommitted: true, From: "main"},
			cove.InvalidArgument},
		{"a worktree", workspace.Repository{Source: dir, Uncommitted: true, Worktree: true},
			cove.InvalidArgument},
		{"no working files", *uncommitted(bare), cove.InvalidArgument},
		{"no directory", *uncommitted(filepath.Join(dir, "nowhere")), cove.NotFound},
		{"a home", *uncommitted(os.Getenv("HOME")), cove.Forbidden},
		{"all of the machine", *uncommitted("/"), cove.Forbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := cove.NewSandboxID()
			who := owner
			if c.name == "another account's directory" {
				who = ci
			}
			_, err := s.Create(t.Context(), workspace.Spec{ID: id, Name: "quiet-heron", User: cove.CodeUser, Owner: who,
				Repository: &c.r},
				nil)
			if cove.ErrorCode(err) != c.code {
				t.Errorf("%v", err)
			}
			if ids, err := s.List(t.Context()); err != nil || len(ids) != 0 {
				t.Errorf("left: %v, %v", ids, err)
			}
		})
	}
}

// TestBind: a person's own directory is the workspace, and outlives it.
func TestBind(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.AgentUser, Bind: dir})
	if w.Directory != dir || !w.Bound {
		t.Errorf("%+v", w)
	}
	if again, err := s.Open(t.Context(), w.ID); err != nil || again.Directory != dir || !again.Bound {
		t.Errorf("%+v, %v", again, err)
	}
	if err := s.Remove(t.Context(), w.ID, true); err != nil {
		t.Fatal(err)
	}
	if got(t, dir, "kept") != "as committed" || got(t, dir, ".git/HEAD") == "" {
		t.Error("the directory went with the workspace")
	}
	if ids, err := s.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
	for name, spec := range map[string]workspace.Spec{
		"relative": {Bind: "x"}, "a file": {Bind: filepath.Join(dir, "kept")}, "with a repository": {Bind: dir,
			Repository: uncommitted(dir)},
	} {
		spec.ID = cove.NewSandboxID()
		if _, err := s.Create(t.Context(), spec, nil); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestBelow: the path of a directory in its repository.
func TestBelow(t *testing.T) {
	dir := project(t)
	sub := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(sub), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "", sub: "a/b", link: "a",
		filepath.Join(dir, "nowhere"): "", "/proc": ""} {
		if got := folder.Below(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestNoSpaceForACheckout: the error names the disk, and nothing is left.
func TestNoSpaceForACheckout(t *testing.T) {
	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("needs root, for a file system of its own: ", err)
	}
	t.Cleanup(func() { unix.Unmount(home, unix.MNT_DETACH) })
	s := open(t, Options{Home: home})
	dir := project(t)
	// compresses well in git
	if err := os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("x"), 16<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	plain(t, dir, "add", "large")
	plain(t, dir, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "large")
	for name, r := range map[string]workspace.Repository{
		"what is not committed": *uncommitted(dir), "what is committed": {Source: dir},
	} {
		_, err := s.Create(t.Context(), ownSpec("quiet-heron", r), nil)
		if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(cove.ErrorHint(err), "free some space") {
			t.Errorf("%s: %s, %v", name, cove.ErrorCode(err), err)
		}
		if ids, err := s.List(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("%s: left are %v, %v", name, ids, err)
		}
	}
}

// TestUncommittedAtOnce: a change of the same length is taken that was made in the second of the last commit.
func TestUncommittedAtOnce(t *testing.T) {
	s, dir := newStore(t, nil), project(t)
	then := time.Now().Add(-time.Hour)
	at := func(name string) {
		if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	at("changed")
	plain(t, dir, "add", "changed")
	put(t, dir, "changed", "AS COMMITTED\n")
	at("changed")
	at(".git/index")
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser, Owner: owner,
		Repository: uncommitted(dir)})
	if g := got(t, w.Directory, "changed"); g != "AS COMMITTED" {
		t.Errorf("changed is %q", g)
	}
}
