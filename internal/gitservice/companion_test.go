//go:build linux

package gitservice

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/workspace"
	"github.com/cove-sandbox/cove/test/await"
)

// house is what tests share: an engine, and a root filesystem with git.
type house struct {
	engine engine.Engine
	root   engine.Rootfs
	git    *hostgit.Git
	dir    string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a root filesystem of another owner")
	}
	h := &house{dir: t.TempDir()}
	for d := h.dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	run := filepath.Join(h.dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	guest := enginetest.BuildGuest(t)
	e, err := native.New(native.Options{Guest: guest, RunDir: run, Instance: in.ID,
		CgroupParent: "cove-test-" + strconv.Itoa(os.Getpid()), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); in.Release() })
	h.engine = e
	if h.git, err = hostgit.Find(); err != nil {
		t.Skip(err)
	}
	if h.root, err = MakeRoot(filepath.Join(h.dir, "root"), guest); err != nil {
		t.Fatal(err)
	}
	return h
}

// plain runs the git of the machine, as a person does.
func plain(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, _, code := try(dir, args...)
	if code != 0 {
		t.Fatalf("git %q: %d %s", args, code, out)
	}
	return out
}

func try(dir string, args ...string) (stdout, stderr string, code int) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=P",
		"GIT_AUTHOR_EMAIL=p@x.example",
		"GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@x.example", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_DATE=1700000000 +0000", "LC_ALL=C", "GIT_EDITOR=:"}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Run()
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// place is a workspace whose repository is hidden.
type place struct {
	t    *testing.T
	c    *companion
	w    workspace.Workspace
	repo string // of the person, or the workspace's own
}

// history makes a repository with the branches main, develop and secret, a tag, and the branch own at main.
func history(t *testing.T, repo string) {
	t.Helper()
	plain(t, filepath.Dir(repo), "init", "-q", "-b", "main", repo)
	write(t, repo+"/a.txt", "one\ntwo\n")
	write(t, repo+"/src/b.go", "package b\n")
	plain(t, repo, "add", ".")
	plain(t, repo, "commit", "-qm", "first")
	plain(t, repo, "tag", "v1.0")
	write(t, repo+"/a.txt", "one\ntwo\nthree\n")
	plain(t, repo, "commit", "-qam", "second")
	plain(t, repo, "branch", "develop")
	plain(t, repo, "branch", "own")
	plain(t, repo, "checkout", "-q", "-b", "secret")
	write(t, repo+"/secret.txt", "the secret of another branch\n")
	plain(t, repo, "add", ".")
	plain(t, repo, "commit", "-qm", "secret commit")
	plain(t, repo, "tag", "-m", "a tag", "annotated", "main")
	plain(t, repo, "checkout", "-q", "main")
}

// unmetered is a NewMeter for tests that do not look at CPU time.
func unmetered() func(context.Context, engine.Sandbox) {
	return func(context.Context, engine.Sandbox) {}
}

func (h *house) open(t *testing.T, w workspace.Workspace) *companion {
	t.Helper()
	c, err := newCompanion(context.Background(), Options{
		Engine: h.engine, Root: h.root, Workspace: w, Dir: filepath.Join(filepath.Dir(w.Directory), "companion"), Git: h.git,
		Clock: clock.Real(), Log: slog.New(slog.DiscardHandler), NewMeter: unmetered,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ofPerson is a worktree of a person's own repository.
func (h *house) ofPerson(t *testing.T) *place {
	t.Helper()
	dir := filepath.Join(h.dir, strings.ReplaceAll(t.Name(), "/", "-"))
	repo, tree := filepath.Join(dir, "person"), filepath.Join(dir, "ws", "checkout")
	if err := os.MkdirAll(filepath.Dir(tree), 0o755); err != nil {
		t.Fatal(err)
	}
	history(t, repo)
	plain(t, repo, "worktree", "add", "-q", tree, "own")
	w := workspace.Workspace{ID: cove.NewSandboxID(), Root: dir, Directory: tree, Hidden: repo + "/.git",
		Worktree: "checkout",
		Checkout: workspace.Checkout{Branch: "own", Shared: []string{"main", "develop"}}}
	return &place{t: t, c: h.open(t, w), w: w, repo: repo}
}

// ofWorkspace is a worktree of the workspace's own repository.
func (h *house) ofWorkspace(t *testing.T) *place {
	t.Helper()
	dir := filepath.Join(h.dir, strings.ReplaceAll(t.Name(), "/", "-"))
	repo, tree := filepath.Join(dir, "ws", "repository.git"), filepath.Join(dir, "ws", "checkout")
	if err := os.MkdirAll(filepath.Dir(tree), 0o755); err != nil {
		t.Fatal(err)
	}
	history(t, filepath.Join(dir, "origin"))
	plain(t, dir, "clone", "-q", "--bare", "origin", repo)
	plain(t, repo, "branch", "-qD", "secret")
	plain(t, repo, "worktree", "add", "-q", tree, "own")
	w := workspace.Workspace{ID: cove.NewSandboxID(), Root: dir, Directory: tree, Hidden: repo, Worktree: "checkout",
		Checkout: workspace.Checkout{Branch: "own", Shared: []string{"main", "develop"}}}
	return &place{t: t, c: h.open(t, w), w: w, repo: repo}
}

var author = []string{"GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@x.example", "GIT_COMMITTER_NAME=P",
	"GIT_COMMITTER_EMAIL=p@x.example",
	"GIT_AUTHOR_DATE=1700000000 +0000", "GIT_COMMITTER_DATE=1700000000 +0000"}

// git asks for a command as the API does.
func (p *place) git(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	return p.with(command.Run{}, args...)
}

func (p *place) with(r command.Run, args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	ctx := context.Background()
	where, err := p.c.Context(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	where.Dir = cove.Workspace
	if r.Command, err = command.Parse(args, where); err != nil {
		return "", "fatal: " + err.Error() + "\n", 128
	}
	var out, said bytes.Buffer
	r.Env, r.Stdout, r.Stderr = author, &out, &said
	code, err = p.c.Run(ctx, r)
	if err != nil {
		return out.String(), said.String() + "fatal: " + err.Error() + "\n", 128
	}
	return out.String(), said.String(), code
}

func (p *place) must(args ...string) string {
	p.t.Helper()
	out, said, code := p.git(args...)
	if code != 0 {
		p.t.Fatalf("git %q: %d %s%s", args, code, out, said)
	}
	return out
}

// TestWork is a day's work in both kinds of repository: what the sandbox
// commits is on its branch outside, and a person at the worktree sees it.
func TestWork(t *testing.T) {
	h := newHouse(t)
	for name, open := range map[string]func(*testing.T) *place{"person": h.ofPerson, "workspace": h.ofWorkspace} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			tree := p.w.Directory
			if out := p.must("status", "--porcelain"); out != "" {
				t.Errorf("status: %q", out)
			}
			if out := p.must("rev-parse", "--show-toplevel", "--abbrev-ref", "HEAD"); out != "/workspace\nown\n" {
				t.Errorf("rev-parse: %q", out)
			}
			write(t, tree+"/new.txt", "new\n")
			write(t, tree+"/a.txt", "one\nchanged\nthree\n")
			p.must("add", "new.txt")
			if out := plain(t, tree, "status", "--porcelain"); out != " M a.txt\nA  new.txt\n" {
				t.Errorf("a person sees %q", out)
			}
			p.must("commit", "-qam", "from the sandbox")
			id := strings.TrimSpace(p.must("rev-parse", "HEAD"))
			if got := strings.TrimSpace(plain(t, p.repo, "rev-parse", "refs/heads/own")); got != id {
				t.Errorf("own is at %s outside, and at %s inside", got, id)
			}
			if out := plain(t, tree, "status", "--porcelain"); out != "" {
				t.Errorf("a person sees %q", out)
			}
			plain(t, p.repo, "fsck", "--strict", "--no-dangling")
			// A person works on.
			write(t, tree+"/person.txt", "person\n")
			plain(t, tree, "add", ".")
			plain(t, tree, "commit", "-qm", "from the person")
			if out := p.must("log", "--format=%s", "main.."); out != "from the person\nfrom the sandbox\n" {
				t.Errorf("log: %q", out)
			}
			write(t, tree+"/a.txt", "to stash\n")
			p.must("stash")
			if out := p.must("stash", "list"); !strings.HasPrefix(out, "stash@{0}: WIP on own") {
				t.Errorf("stash list: %q", out)
			}
			p.must("stash", "pop")
			p.must("commit", "-qam", "stashed")
			p.must("reset", "--hard", "-q", "HEAD~1")
			if got, want := plain(t, p.repo, "rev-parse", "own"), p.must("rev-parse", "HEAD"); got != want {
				t.Errorf("after a reset own is at %s outside, and at %s inside", got, want)
			}
			p.must("switch", "-q", "--detach", "v1.0")
			p.must("switch", "-q", "own")
			plain(t, p.repo, "fsck", "--strict", "--no-dangling")
			if out, _, code := p.git("cat-file", "-e", "0123456789012345678901234567890123456789"); code == 0 {
				t.Errorf("an object that is not there: %q", out)
			}
		})
	}
}

// TestOtherBranchesAreNotThere: of a person's repository a sandbox sees its own branch, the shared ones and tags, by no
// name, listing or id another one, and changes only its own.
func TestOtherBranchesAreNotThere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	p := newHouse(t).ofPerson(t)
	secret := strings.TrimSpace(plain(t, p.repo, "rev-parse", "secret"))
	blob := strings.TrimSpace(plain(t, p.repo, "rev-parse", "secret:secret.txt"))
	tree := strings.TrimSpace(plain(t, p.repo, "rev-parse", "secret^{tree}"))
	before := plain(t, p.repo, "for-each-ref", "--format=%(refname) %(objectname)")
	config, err := os.ReadFile(p.repo + "/.git/config")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"branch", "-a"}, {"branch", "-avv"}, {"for-each-ref"}, {"show-ref"}, {"log", "--all", "--oneline", "--decorate"},
		{"log", "--branches"}, {"log", "--remotes"},
		{"log", "--glob=*"}, {"log", "-g"}, {"log", "--exclude=x", "--all"}, {"rev-parse", "--all"},
		{"rev-list", "--all", "--objects"}, {"rev-parse", "--branches"}, {"show-branch", "-a"},
		{"name-rev", "--all"}, {"describe", "--all"}, {"stash", "list"}, {"reflog"}, {"tag", "--contains", "main"},
		{"branch", "--contains", "main"},
		{"show", secret}, {"show", secret[:8]}, {"log", secret}, {"log", secret + "..main"}, {"log", "main.." + secret[:7]},
		{"log", "^" + secret, "main"}, {"diff", "main", secret}, {"diff", "main..." + secret},
		{"cat-file", "-p", secret}, {"cat-file", "-t", secret}, {"cat-file", "-e", secret}, {"cat-file", "-p", blob},
		{"cat-file", "blob", blob[:6]}, {"show", blob}, {"show", secret + ":secret.txt"}, {"show", "x-g" + secret},
		{"ls-tree", tree}, {"ls-tree", secret}, {"ls-tree", "-r", secret[:10]}, {"diff", blob, "HEAD:a.txt"},
		{"diff-tree", "-p", secret}, {"rev-parse", secret[:9]}, {"rev-parse", secret + "^"},
		{"merge", secret}, {"rebase", secret}, {"cherry-pick", secret}, {"revert", secret}, {"reset", "--hard", secret},
		{"checkout", secret}, {"switch", "--detach", secret}, {"switch", "-C", "own", secret},
		{"checkout", secret, "--", "secret.txt"}, {"restore", "--source=" + secret, "secret.txt"},
		{"restore", "-s", tree, "secret.txt"}, {"branch", "--contains", secret}, {"tag", "--contains", secret},
		{"merge-base", "main", secret}, {"merge-base", "--is-ancestor", secret, "main"}, {"blame", secret, "--", "a.txt"},
		{"grep", "secret", secret}, {"range-diff", "main.." + secret, "main..own"},
		{"commit", "--allow-empty", "-C", secret}, {"commit", "--allow-empty", "--fixup=" + secret},
		{"log", "--find-object=" + blob}, {"rebase", "--onto", secret, "main"}, {"cherry", secret}, {"describe", secret},
		{"name-rev", secret},
		{"show", "secret"}, {"log", "secret"}, {"log", "refs/heads/secret", "--"}, {"switch", "--detach", "secret"},
		{"merge", "secret"}, {"rev-parse", "secret"}, {"checkout", "secret"},
		{"checkout", "main"}, {"switch", "-c", "mine"}, {"branch", "mine"}, {"tag", "mine"}, {"branch", "-D", "main"},
		{"branch", "-f", "main", "own"}, {"update-ref", "refs/heads/main", "own"},
	} {
		out, said, _ := p.git(args...)
		// What was asked for may be named in the refusal.
		shown := out + said
		for _, a := range args {
			shown = strings.ReplaceAll(shown, a, "")
		}
		if strings.Contains(shown, "secret") || strings.Contains(out, secret[:7]) || strings.Contains(out, blob[:7]) {
			t.Errorf("git %q shows:\n%s%s", args, out, said)
		}
	}
	if _, err := os.Stat(p.w.Directory + "/secret.txt"); err == nil {
		t.Error("a file of another branch is in the workspace")
	}
	after := plain(t, p.repo, "for-each-ref", "--format=%(refname) %(objectname)")
	mine := func(s string) bool { return strings.HasPrefix(s, "refs/heads/own ") }
	if got, want := slices.DeleteFunc(strings.Split(after, "\n"), mine),
		slices.DeleteFunc(strings.Split(before, "\n"), mine); !slices.Equal(got, want) {
		t.Errorf("refs were\n%s and are\n%s", before, after)
	}
	if now, _ := os.ReadFile(p.repo + "/.git/config"); !bytes.Equal(now, config) {
		t.Errorf("the configuration is\n%s", now)
	}
}

// TestNothingRuns: whatever a sandbox puts into its files, and the repository's configuration names, no program of
// either runs, inside the companion or outside.
func TestNothingRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	p := newHouse(t).ofPerson(t)
	tree := p.w.Directory
	canary := tree + "/canary"
	evil := "#!/bin/sh\ntouch /workspace/ran " + tree + "/ran " + canary + "\ncat\n"
	write(t, tree+"/evil", evil)
	// A program that needs no other, and no interpreter.
	source := filepath.Join(t.TempDir(), "main.go")
	write(t, source, "package main\nimport \"os\"\nfunc main() { os.WriteFile(\"/workspace/ran\", nil, 0o644) }\n")
	build := exec.Command("go", "build", "-o", tree+"/evil.static", source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A person's configuration that is not for everybody's files.
	for _, kv := range [][2]string{
		{"filter.evil.clean", "/workspace/evil"}, {"filter.evil.smudge", "/workspace/evil"}, {"filter.evil.required", "true"},
		{"diff.evil.textconv", "/workspace/evil"},
		{"diff.evil.command", "/workspace/evil"}, {"diff.external", "/workspace/evil"},
		{"merge.evil.driver", "/workspace/evil %A"}, {"core.fsmonitor", "/workspace/evil"},
		{"core.hooksPath", "/workspace/hooks"}, {"core.sshCommand", "/workspace/evil"}, {"gpg.program", "/workspace/evil"},
		{"commit.gpgsign", "true"}, {"core.editor", "/workspace/evil"},
		{"core.pager", "/workspace/evil"}, {"credential.helper", "/workspace/evil"}, {"alias.status", "!/workspace/evil"},
		{"sequence.editor", "/workspace/evil"}, {"core.attributesFile", "/workspace/attributes"},
	} {
		plain(t, p.repo, "config", kv[0], kv[1])
	}
	attributes := "* filter=evil diff=evil merge=evil\n"
	write(t, tree+"/.gitattributes", attributes)
	write(t, tree+"/attributes", attributes)
	for _, hook := range []string{"pre-commit", "post-commit", "commit-msg", "prepare-commit-msg", "post-checkout",
		"post-merge", "pre-rebase", "applypatch-msg", "pre-applypatch", "post-applypatch",
		"post-rewrite", "reference-transaction", "post-index-change", "fsmonitor-watchman"} {
		write(t, tree+"/hooks/"+hook, evil)
		write(t, p.repo+"/.git/hooks/"+hook, evil)
	}
	// Another repository below the workspace, which git looks into as a submodule.
	plain(t, tree, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "init", "-q", "sub")
	write(t, tree+"/sub/f", "f\n")
	write(t, tree+"/sub/static", "f\n")
	plain(t, tree+"/sub", "-c", "core.hooksPath=/dev/null", "add", "f", "static")
	plain(t, tree+"/sub", "-c", "core.hooksPath=/dev/null", "commit", "-qm", "x")
	for _, kv := range [][2]string{{"core.fsmonitor", "/workspace/evil"}, {"filter.evil.clean", "/workspace/evil"},
		{"filter.static.clean", "/workspace/evil.static"}, {"diff.external", "/workspace/evil"},
		{"core.hooksPath", "/workspace/hooks"},
		{"alias.status", "!/workspace/evil"}, {"include.path", "/workspace/included"}} {
		plain(t, tree+"/sub", "config", kv[0], kv[1])
	}
	write(t, tree+"/sub/.gitattributes", "* filter=evil diff=evil\nstatic filter=static\n")
	write(t, tree+"/sub/static", "g\n")
	write(t, tree+"/sub/f", "g\n") // of the same size: git has to read it
	write(t, tree+"/.gitmodules",
		"[submodule \"sub\"]\n\tpath = sub\n\turl = ext::/workspace/evil\n\tupdate = !/workspace/evil\n\tignore = none\n")
	os.Remove(tree + "/ran")
	os.Remove(canary)

	for _, args := range [][]string{
		{"add", "."}, {"status"}, {"diff"}, {"diff", "--cached"}, {"commit", "-m", "x"}, {"status"}, {"diff", "HEAD~1"},
		{"log", "-p"}, {"show"}, {"blame", "a.txt"}, {"grep", "one"},
		{"add", "-u"}, {"commit", "-am", "y", "--allow-empty"}, {"stash"}, {"stash", "pop"}, {"checkout", "--", "."},
		{"checkout", "HEAD~1", "--", "a.txt"}, {"reset", "--hard"}, {"switch", "--detach", "main"}, {"switch", "own"},
		{"merge", "develop"}, {"merge", "--no-ff", "-m", "m", "develop"}, {"rebase", "main"}, {"cherry-pick", "main"},
		{"cherry-pick", "--abort"}, {"revert", "--no-edit", "HEAD"}, {"revert", "--abort"},
		{"describe", "--dirty", "--always"}, {"submodule", "status"}, {"archive", "HEAD"},
		{"archive", "--format=tgz", "HEAD", "sub"}, {"format-patch", "--stdout", "HEAD~1"}, {"format-patch", "HEAD~1"},
		{"am", "--abort"}, {"reset", "--hard"}, {"am", "mail"}, {"am", "-3", "mail"}, {"am", "--skip"},
		{"diff", "--submodule"}, {"diff-files", "-p"}, {"diff-index", "-p", "HEAD"}, {"ls-files", "-m"},
		{"rm", "-r", "--cached", "sub"}, {"clean", "-nd"}, {"update-index", "--refresh"}, {"commit", "--amend", "--no-edit"},
		{"fetch"}, {"push"},
	} {
		var r command.Run
		if args[0] == "am" {
			r.Stdin = []byte(mailed)
		}
		out, said, code := p.with(r, args...)
		for _, name := range []string{canary, tree + "/ran"} {
			if _, err := os.Lstat(name); err == nil {
				t.Fatalf("git %q ran a program: %d %s%s", args, code, out, said)
			}
		}
	}
}

// mailed is a patch as "git am" reads it.
const mailed = `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@x.example>
Date: Tue, 14 Nov 2023 22:13:20 +0000
Subject: [PATCH] Add a file

---
diff --git a/mailed.txt b/mailed.txt
new file mode 100644
index 0000000..5626abf
--- /dev/null
+++ b/mailed.txt
@@ -0,0 +1 @@
+one
-- 
2.39.5
`

// TestTheRootHasOnlyGit: there is nothing in a companion that could be run in git's place.
func TestTheRootHasOnlyGit(t *testing.T) {
	h := newHouse(t)
	filepath.WalkDir(h.root.Dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		if !d.Type().IsRegular() || strings.Contains(base, ".so") || strings.HasPrefix(name, h.root.Dir+"/etc/") ||
			slices.Contains([]string{"git", "git-remote-http", "git-edit"}, base) {
			return nil
		}
		t.Errorf("%s is in the root", strings.TrimPrefix(name, h.root.Dir))
		return nil
	})
}

// TestEditor: git's texts are edited by whoever asked for the command.
func TestEditor(t *testing.T) {
	p := newHouse(t).ofPerson(t)
	write(t, p.w.Directory+"/a.txt", "edited\n")
	var name, template string
	out, said, code := p.with(command.Run{Edit: func(_ context.Context, n string, text []byte) ([]byte, error) {
		name, template = n, string(text)
		return append([]byte("typed in an editor\n"), text...), nil
	}}, "commit", "-a")
	if code != 0 || name != "COMMIT_EDITMSG" || !strings.Contains(template, "# Changes to be committed:") {
		t.Fatalf("%d %s%s\n%s: %s", code, out, said, name, template)
	}
	if got := p.must("log", "-1", "--format=%B"); got != "typed in an editor\n\n" {
		t.Errorf("the message is %q", got)
	}
	_, said, code = p.with(command.Run{Edit: func(context.Context, string, []byte) ([]byte, error) {
		return nil,
			context.Canceled
	}}, "commit", "--amend")
	if code != 1 || !strings.Contains(said, "error: There was a problem with the editor") {
		t.Errorf("%d %s", code, said)
	}
	if _, said, code = p.git("commit", "--amend"); code != 1 || !strings.Contains(said, "nobody can edit") {
		t.Errorf("%d %s", code, said)
	}
}

// TestCancelled: git takes its locks away when nobody waits for it any more.
func TestCancelled(t *testing.T) {
	p := newHouse(t).ofPerson(t)
	write(t, p.w.Directory+"/a.txt", "edited\n")
	ctx, cancel := context.WithCancel(context.Background())
	where, _ := p.c.Context(ctx)
	where.Dir = cove.Workspace
	c, err := command.Parse([]string{"commit", "-a"}, where)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.c.Run(ctx, command.Run{Command: c, Env: author, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{},
		Edit: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	if err == nil {
		t.Error("a command whose caller has gone ended well")
	}
	if out := p.must("status", "--porcelain"); out != " M a.txt\n" {
		t.Errorf("status: %q", out)
	}
	p.must("commit", "-qam", "still possible")
}

// TestBothMove: when the branch moves outside and inside at once, neither is lost.
func TestBothMove(t *testing.T) {
	p := newHouse(t).ofPerson(t)
	p.must("status")
	plain(t, p.repo, "update-ref", "refs/heads/own", "develop~1") // a person, while nobody asks
	p.must("status")
	if got, want := p.must("rev-parse", "own"), plain(t, p.repo, "rev-parse", "own"); got != want {
		t.Errorf("inside %s, outside %s", got, want)
	}
	outside := ""
	_, said, code := p.with(command.Run{Edit: func(_ context.Context, _ string, text []byte) ([]byte, error) {
		plain(t, p.repo, "update-ref", "refs/heads/own", "secret")
		outside = plain(t, p.repo, "rev-parse", "own")
		return []byte("meanwhile\n"), nil
	}}, "commit", "--allow-empty")
	if code != 128 || !strings.Contains(said, "changed outside") {
		t.Errorf("%d %s", code, said)
	}
	if got := plain(t, p.repo, "rev-parse", "own"); got != outside {
		t.Errorf("the person's change is lost: %s", got)
	}
	if got := p.must("log", "-1", "--format=%s"); got != "meanwhile\n" {
		t.Errorf("the sandbox's commit is lost: %s", got)
	}
}

// TestAsPlainGit: what a command says, and how it ends, is what git says of the same repository in the same state.
func TestAsPlainGit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	h := newHouse(t)
	p := h.ofPerson(t)
	twin := filepath.Join(h.dir, "twin")
	history(t, twin)
	tree := filepath.Join(h.dir, "twin-checkout")
	plain(t, twin, "branch", "-qD", "secret")
	plain(t, twin, "worktree", "add", "-q", tree, "own")
	both := func(name, text string) {
		write(t, filepath.Join(p.w.Directory, name), text)
		write(t, filepath.Join(tree, name), text)
	}
	// which is checked out beside it
	normal := strings.NewReplacer(twin+"/.git/worktrees/twin-checkout/", gitDir+"/worktrees/checkout/", tree,
		cove.Workspace, "+ main", "  main").Replace
	n := 0
	same := func(args ...string) {
		t.Helper()
		n++
		wantOut, wantSaid, wantCode := try(tree, args...)
		out, said, code := p.git(args...)
		said = strings.ReplaceAll(said, "'./", "'")
		if out != normal(wantOut) || code != wantCode || said != normal(wantSaid) {
			t.Errorf("git %q: %d\n%s%s\nwant %d\n%s%s", args, code, out, said, wantCode, normal(wantOut), normal(wantSaid))
		}
	}
	for _, line := range []string{
		"status", "status -sb", "status --porcelain=v2", "log", "log --oneline --graph --decorate", "log -1 -p", "log --stat",
		"log --format=%H%n%an", "log main..", "log v1.0..HEAD", "log -- a.txt", "log a.txt",
		"log --all --oneline", "log nothing", "show", "show HEAD~1", "show HEAD:a.txt", "show v1.0", "show annotated",
		"show HEAD:none", "diff", "diff main", "diff HEAD~1", "diff --stat HEAD~1", "diff v1.0 main -- a.txt",
		"diff --name-status HEAD~1", "diff --exit-code HEAD~1", "diff --word-diff=plain HEAD~1", "blame a.txt",
		"blame -s -L 1,1 a.txt", "blame none", "annotate a.txt", "grep one", "grep -n two -- *.txt", "grep nothing",
		"grep -c e HEAD~1",
		"ls-files", "ls-files -s", "ls-tree HEAD", "ls-tree -r --name-only HEAD src", "cat-file -t HEAD",
		"cat-file -p HEAD^{tree}", "cat-file -s HEAD:a.txt", "cat-file -e HEAD:none", "rev-parse HEAD",
		"rev-parse --abbrev-ref HEAD",
		"rev-parse --show-toplevel", "rev-parse --is-inside-work-tree", "rev-parse --show-prefix",
		"rev-parse --verify -q nothing", "rev-list --count HEAD", "rev-list --objects HEAD", "merge-base main own",
		"merge-base --is-ancestor v1.0 own",
		"name-rev HEAD", "describe", "describe --tags", "describe --abbrev=0", "shortlog -sn HEAD", "for-each-ref",
		"for-each-ref --format=%(refname:short) refs/heads", "show-ref", "show-ref --heads", "symbolic-ref HEAD",
		"symbolic-ref --short HEAD",
		"branch --show-current", "branch --contains v1.0", "tag", "tag -l v*", "tag -n", "tag --contains HEAD",
		"check-ignore a.o", "check-attr text -- a.txt", "check-ref-format --branch own", "version", "remote", "remote -v",
		"config --get user.nothing",
		"reflog -1", "stash list", "stash pop", "diff-tree -r HEAD", "diff-index HEAD", "diff-files",
		"range-diff v1.0..main v1.0..own", "cherry main", "show-branch main own", "whatchanged -1", "sparse-checkout list",
		"count-objects",
	} {
		if strings.HasPrefix(line, "count-objects") || strings.HasPrefix(line, "reflog") {
			continue // where objects are, and when it began, is another matter
		}
		same(strings.Fields(line)...)
	}
	both("a.txt", "one\nTWO\nthree\n")
	both("new file.txt", "new\n")
	both(".gitignore", "*.o\n")
	both("x.o", "")
	for _, line := range []string{
		"status", "status --short", "status --porcelain --ignored", "diff", "add -n .", "add .", "status -v", "diff --cached",
		"add x.o", "add none", "rm --cached a.txt", "status -s", "restore --staged a.txt", "restore a.txt", "status -s",
		"check-ignore -v x.o",
		"mv a.txt c.txt", "mv none d", "commit -m moved", "log -1 --stat -M", "show --stat", "commit -m nothing", "rm c.txt",
		"status -s", "reset", "checkout -- c.txt", "checkout c.txt", "status -s", "reset --soft HEAD~1", "status -s",
		"commit -qm again",
		"reset --hard HEAD~1", "reset --hard ORIG_HEAD", "branch -v", "tag --contains HEAD", "checkout v1.0", "status",
		"log -1 --format=%d", "switch own", "switch own", "switch --detach main", "switch -", "checkout none",
	} {
		same(strings.Fields(line)...)
	}
	both("c.txt", "stash me\n")
	for _, line := range []string{"stash", "stash list", "stash show -p", "stash show --stat stash@{0}", "status -s",
		"stash apply", "stash drop", "stash push -m named -- c.txt", "stash list", "stash pop", "stash pop",
		"commit -am kept", "commit --amend --no-edit"} {
		same(strings.Fields(line)...)
	}
	// Merging what is on another branch, with and without a conflict.
	for _, at := range []string{p.repo, twin} {
		write(t, at+"/src/b.go", "package b // main\n")
		plain(t, at, "commit", "-qam", "on main")
		plain(t, at, "branch", "-f", "develop", "main")
	}
	both("src/b.go", "package b // own\n")
	for _, line := range []string{
		"commit -qam mine", "log --oneline main...own", "log --oneline --left-right main...own",
		"rev-list --left-right --count main...own", "merge main", "status", "diff", "ls-files -u", "merge --abort",
		"merge -X ours main -m merged", "log --oneline --graph", "show",
		"reset --hard HEAD~1", "rebase main", "status", "rebase --abort", "rebase -X theirs main", "log --oneline -3",
		"cherry-pick v1.0", "cherry-pick --abort", "revert --no-edit HEAD", "log -1", "revert HEAD~9", "merge --ff-only v1.0",
		"diff main --stat",
	} {
		same(strings.Fields(line)...)
	}
	for _, line := range []string{
		"format-patch -1", "format-patch -o patches main", "format-patch --stdout -1 --signoff",
		"format-patch -1 -o none/there",
		"archive --format=tar HEAD", "archive HEAD src", "archive --format=zip --prefix=x/ v1.0", "archive HEAD none",
		"archive --format=tgz HEAD src/b.go", "submodule status", "clean -fdq",
	} {
		same(strings.Fields(line)...)
	}
	mail := plain(t, tree, "format-patch", "--stdout", "-1")
	both("mail", mail)
	same("reset", "-q", "--hard", "HEAD~1")
	for _, args := range [][]string{{"am", "mail"}, {"am", "--abort"}, {"am", "--continue"}, {"am", "-3", "mail"}} {
		out, said, code := p.with(command.Run{Stdin: []byte(mail)}, args...)
		wantOut, wantSaid, wantCode := try(tree, args...)
		if out != normal(wantOut) || said != normal(wantSaid) || code != wantCode {
			t.Errorf("git %q: %d\n%s%s\nwant %d\n%s%s", args, code, out, said, wantCode, normal(wantOut),
				normal(wantSaid))
		}
		same("log", "-2", "--format=%an %ad %s %T")
		same("status", "--short")
	}
	both("fix.patch", "--- a/c.txt\n+++ b/c.txt\n@@ -1 +1 @@\n-stash me\n+patched\n")
	patch := []byte("--- a/c.txt\n+++ b/c.txt\n@@ -1 +1 @@\n-stash me\n+patched\n")
	same("rm", "-q", "--cached", "--ignore-unmatch", "fix.patch")
	if out, said, code := p.with(command.Run{Stdin: patch}, "apply", "fix.patch"); code != 0 {
		t.Errorf("apply: %d %s%s", code, out, said)
	}
	plain(t, tree, "apply", "fix.patch")
	for _, line := range []string{"status -s", "diff", "clean -n", "clean -fd", "commit -am patched", "fsck",
		"log --format=%H -1"} {
		if line != "fsck" {
			same(strings.Fields(line)...)
		}
	}
	if n < 150 {
		t.Errorf("%d commands were compared", n)
	}
}

// TestEnds: a companion that has ended, by itself or because nobody needed it,
// is made again for the next command; and none is left in the end.
func TestEnds(t *testing.T) {
	h := newHouse(t)
	dir := filepath.Join(h.dir, "place")
	repo, tree := filepath.Join(dir, "person"), filepath.Join(dir, "ws", "checkout")
	if err := os.MkdirAll(filepath.Dir(tree), 0o755); err != nil {
		t.Fatal(err)
	}
	history(t, repo)
	plain(t, repo, "worktree", "add", "-q", tree, "own")
	time := clocktest.NewManual(clock.Real().Now())
	w := workspace.Workspace{ID: cove.NewSandboxID(), Root: dir, Directory: tree, Hidden: repo + "/.git",
		Worktree: "checkout", Checkout: workspace.Checkout{Branch: "own", Shared: []string{"main"}}}
	var counted []cove.SandboxID // by each meter, the last one
	newMeter := func() func(context.Context, engine.Sandbox) {
		i := len(counted)
		counted = append(counted, "")
		return func(ctx context.Context, sb engine.Sandbox) {
			if _, err := sb.Stats(ctx); err == nil { // it is there to be counted
				counted[i] = sb.ID()
			}
		}
	}
	c, err := newCompanion(context.Background(), Options{Engine: h.engine, Root: h.root, Workspace: w,
		Dir: filepath.Join(dir, "companion"), Git: h.git, Clock: time, Log: slog.New(slog.DiscardHandler),
		NewMeter: newMeter})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, c: c, w: w, repo: repo}
	running := func() *job.Job {
		b := c.boxes[false]
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.job
	}
	p.must("status")
	first := running()
	p.must("status")
	if running() != first {
		t.Error("each command has a companion of its own")
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	p.must("status")
	second := running()
	if second == first {
		t.Error("a dead companion is asked")
	}
	time.BlockUntil(1)
	time.Advance(idleTime)
	<-second.Done()
	if running() != nil {
		t.Error("an idle companion is kept")
	}
	p.must("status")
	last := running()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []cove.SandboxID{first.ID(), second.ID(), last.ID()}; !slices.Equal(counted, want) {
		t.Errorf("the CPU time of %q is counted, want %q", counted, want)
	}
	<-last.Done()
	_, err = c.Run(context.Background(), command.Run{Command: command.Command{Verb: "status", Args: []string{"status"},
		Dir: cove.Workspace}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	if cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

// TestLinksLeadNowhere: a directory that git is to run in is not elsewhere,
// where it would compare whatever files are there.
func TestLinksLeadNowhere(t *testing.T) {
	p := newHouse(t).ofPerson(t)
	for name, target := range map[string]string{"objects": objects, "git": gitDir, "root": "/"} {
		if err := os.Symlink(target, filepath.Join(p.w.Directory, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"-C", "objects", "diff", ".", "pack"}, {"-C", "objects", "diff", "info", "pack"},
		{"-C", "git", "diff", "HEAD", "config"}, {"-C", "git", "diff", "config", "commondir"},
		{"-C", "root/etc", "diff", "passwd", "group"},
		{"-C", "root", "status"}, {"-C", "git/worktrees/checkout", "diff", "HEAD", "gitdir"}} {
		if out, said, code := p.git(args...); code != 128 || out != "" || !strings.Contains(said, "cannot change to") {
			t.Errorf("git %q: %d %s%s", args, code, out, said)
		}
	}
	p.must("add", "objects")
	if out := p.must("diff", "--cached", "--stat", "--", "objects"); !strings.Contains(out, "objects | 1 +") {
		t.Errorf("%s", out)
	}
}

// TestSend: what is not committed becomes a commit beside what somebody works
// with, and git sends it, with the branches that may be seen and no other.
func TestSend(t *testing.T) {
	const work = "refs/cove/work"
	h := newHouse(t)
	for name, open := range map[string]func(*testing.T) *place{"person": h.ofPerson, "workspace": h.ofWorkspace} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			write(t, p.w.Directory+"/a.txt", "changed\n")
			write(t, p.w.Directory+"/staged.txt", "staged\n")
			write(t, p.w.Directory+"/new/untracked.txt", "untracked\n")
			p.must("add", "staged.txt")
			plain(t, p.w.Directory, "commit", "-q", "--allow-empty", "-m", "by a person")
			const status = " M a.txt\n?? new/\n"
			if err := p.c.Snapshot(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if out := plain(t, p.w.Directory, "status", "--porcelain"); out != status {
				t.Errorf("the status is now %q", out)
			}
			refs := p.sent()
			if !strings.Contains(refs, " "+work+"\n") || !strings.Contains(refs, " refs/heads/own\n") ||
				strings.Contains(refs, "secret") {
				t.Errorf("it sends\n%s", refs)
			}
			head, _, _ := strings.Cut(refs, " ")
			if want := strings.TrimSpace(plain(t, p.repo, "rev-parse", "own")); head != want {
				t.Errorf("HEAD is %s, and the branch at %s", head, want)
			}
			id, _, _ := strings.Cut(refs[strings.LastIndexByte(refs[:strings.Index(refs, " "+work)], '\n')+1:], " ")
			if out := p.must("diff", "--name-status", "HEAD", id); out != "M\ta.txt\nA\tnew/untracked.txt\n" {
				t.Errorf("it has %q", out)
			}
			plain(t, p.w.Directory, "checkout", "-q", ".")
			plain(t, p.w.Directory, "clean", "-fdq")
			if err := p.c.Snapshot(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if refs := p.sent(); strings.Contains(refs, work) {
				t.Errorf("with everything committed it sends\n%s", refs)
			}
			p.changeAtOnce(p.w.Directory + "/a.txt")
			if err := p.c.Snapshot(t.Context(), work); err != nil {
				t.Fatal(err)
			}
			if refs := p.sent(); !strings.Contains(refs, work) {
				t.Errorf("with a change in the second of the index it sends\n%s", refs)
			}
			if left, _ := filepath.Glob(p.c.repository() + "/cove-work*"); len(left) > 0 {
				t.Errorf("there is left %v", left)
			}
		})
	}
}

// changeAtOnce changes a committed file in the second in which git writes the index, without another size, and returns
// in a later one.
func (p *place) changeAtOnce(file string) {
	p.t.Helper()
	committed, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	index := filepath.Join(p.w.Hidden, "worktrees", p.w.Worktree, "index")
	for {
		write(p.t, file, string(committed))
		began := changed(p.t, file)
		p.must("add", filepath.Base(file))
		write(p.t, file, strings.Repeat("x", len(committed)))
		if changed(p.t, file) == began && changed(p.t, index) == began {
			await.That(p.t, "the next second", func() bool { return time.Now().Unix() > began })
			return
		}
	}
}

// changed returns the second of a file's last change.
func changed(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime().Unix()
}

// sent is what git begins with that sends: ids and refs, the first HEAD's.
func (p *place) sent() string {
	p.t.Helper()
	process, done, err := p.c.Send(context.Background(), false)
	if err != nil {
		p.t.Fatal(err)
	}
	defer done()
	process.Stdin().Write([]byte("0000")) // nothing is wanted
	process.Stdin().Close()
	out, err := io.ReadAll(process.Stdout())
	if err != nil {
		p.t.Fatal(err)
	}
	var refs strings.Builder
	for line := range strings.Lines(string(out)) {
		if len(line) > 4 {
			refs.WriteString(strings.ReplaceAll(line[4:], "\x00", "\n"))
		}
	}
	return refs.String()
}
