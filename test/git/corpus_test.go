//go:build linux

package git

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// corpus is one installed Cove, one git server and one GitHub look-alike for repositories of all shapes.
type corpus struct {
	*lab
	forge *forge
	dir   string // of the people's folders
	turns chan struct{}
	times bool // write down how long each step takes, and plain git's beside it
}

// shape is a repository as people have them, made from nothing.
type shape struct {
	name string
	init []string              // flags of git init
	make func(git gittest.Git) // fills an empty repository
	// place makes the folder in which the person works of a clone, and returns it; nil: the clone is the folder.
	place func(c *corpus, git gittest.Git) gittest.Git
	flags []string // more of "cove new" of the address
	clone []string // the same for git clone
	// sparse are the directories that are checked out of the address.
	sparse []string
	edit   string // shell commands that change files, inside and outside; default usual
	// check says something of the shape that has to be the same in the sandbox, beside it and where it is pushed to.
	check  string
	branch string // the default one; default main
	long   bool   // only with COVE_TEST_LONG=1
	folder bool   // only its folder is another than that of a plain one: what the server has is not
	local  bool   // its folder has no remote that sandboxes can push to
	// refused is what "cove new" of the folder says before anything is made.
	refused string
}

// usual changes a file and adds others.
const usual = "echo edited >>README; mkdir -p docs/new; echo new >docs/new/file; printf '\\0\\1' >docs/new/binary"

// fixed makes commits of a script the same wherever it runs.
const fixed = `export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@git.test GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@git.test
export GIT_AUTHOR_DATE=2001-02-03T04:05:06Z GIT_COMMITTER_DATE=2001-02-03T04:05:06Z LC_ALL=C
`

// said is a script that prints what git knows of a checkout.
const said = `git status --porcelain; git rev-parse HEAD^{tree}; git ls-files -s | git hash-object --stdin
git fsck --no-dangling --no-progress 2>&1; echo "fsck $?"`

// TestCorpus: repositories of all shapes, as addresses and as folders of this machine, go through a sandbox as through
// plain git: the same commits, trees and status come out of the same edits, and what is a person's stays as it is.
func TestCorpus(t *testing.T) {
	f := &forge{}
	c := &corpus{forge: f, turns: make(chan struct{}, 4)}
	c.lab = newLab(t, gittest.Options{User: "robot", Password: password, Token: password, Wrap: f.wrap})
	c.lasting()
	c.dir = c.path("people")
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// What a person's own configuration names is run by nothing of Cove's.
	ran := c.path("ran")
	c.script("ran.sh", "touch "+ran+"\nexit 1")
	for _, hook := range []string{"pre-commit", "post-checkout", "pre-push", "reference-transaction",
		"post-index-change"} {
		sure(os.MkdirAll(c.path("hooks"), 0o755))
		sure(os.Symlink(c.path("ran.sh"), filepath.Join(c.path("hooks"), hook)))
	}
	c.write(".gitconfig", fmt.Sprintf("[credential]\n\thelper = store\n[commit]\n\tgpgsign = true\n"+
		"[tag]\n\tgpgsign = true\n"+
		"[gpg]\n\tprogram = %[1]s\n[core]\n\tfsmonitor = %[1]s\n\thooksPath = %[2]s\n[filter \"lfs\"]\n\tclean = %[1]s\n"+
		"\tsmudge = %[1]s\n\tprocess = %[1]s\n\trequired = true\n", c.path("ran.sh"), c.path("hooks")))
	c.write(".git-credentials", fmt.Sprintf("https://robot:%s@%s:%d\n", password, host, c.server.Addr().Port))
	c.write("cove.yaml", fmt.Sprintf(`gateway: {extra_cas: [%s], github_hosts: [%s]}
agents:
  - name: scripted
    program: sh
    prompt: argument
    output: text
    headless: [sh, -c, "echo fixed >fixed.txt", sh, "{prompt}"]
`, c.server.CA, host))
	c.cove("list") // starts the background server
	t.Run("shapes", func(t *testing.T) {
		for _, s := range shapes() {
			if s.long && os.Getenv("COVE_TEST_LONG") == "" {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				c.turns <- struct{}{}
				defer func() { <-c.turns }()
				mine := *c.lab
				mine.t = t
				testShape(t, &corpus{lab: &mine, forge: f, dir: c.dir, turns: c.turns, times: s.long}, s)
			})
		}
	})
	if _, err := os.Lstat(ran); err == nil {
		t.Error("a program of the person's configuration has run")
	}
	if t.Failed() {
		log, _ := os.ReadFile(c.path(home + "/logs/server.log"))
		for line := range strings.Lines(string(log)) {
			if !strings.Contains(line, "level=INFO") {
				t.Log(line)
			}
		}
	}
}

func testShape(t *testing.T, c *corpus, s shape) {
	name := strings.ReplaceAll(strings.ToLower(s.name), " ", "-")
	of := "owner/" + name + ".git"
	git := c.plain(c.dir)
	s.branch = cmp.Or(s.branch, "main")
	git.Run(slices.Concat([]string{"init", "-q", "-b", s.branch}, s.init, []string{name})...)
	git = git.In(name)
	if s.make != nil {
		s.make(git)
	}
	r := c.serve(git, of, s.branch)
	git.Run("remote", "add", "origin", c.remote(of))
	git.Run("config", "url."+c.server.URL("")+".insteadOf", c.remote(""))
	if git.Try("rev-parse", "-q", "--verify", "refs/heads/"+s.branch).Code == 0 {
		git.Run("fetch", "-q", "origin")
	}
	if s.place != nil {
		git = s.place(c, git)
	}
	if s.edit == "" {
		s.edit = usual
	}
	t.Run("folder", func(t *testing.T) { c.of(t).folder(s, name, git, r) })
	r.Try("update-ref", "-d", "refs/heads/folder")
	if s.folder {
		return
	}
	t.Run("address", func(t *testing.T) { c.of(t).address(s, name, r) })
	r.Try("update-ref", "-d", "refs/heads/own")
	t.Run("issue", func(t *testing.T) { c.of(t).issue(r, "refs/heads/"+s.branch) })
}

// script writes a program.
func (c *corpus) script(name, text string) string {
	c.t.Helper()
	file := c.write(name, "#!/bin/sh\n"+text+"\n")
	if err := os.Chmod(file, 0o755); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// of is the same corpus for another test.
func (c *corpus) of(t *testing.T) *corpus {
	mine := *c.lab
	mine.t = t
	return &corpus{lab: &mine, forge: c.forge, dir: c.dir, turns: c.turns, times: c.times}
}

// took writes down how long a step has taken, at the end of it: defer c.took("what")().
func (c *corpus) took(what string) func() {
	if !c.times {
		return func() {}
	}
	begun := time.Now()
	return func() { c.t.Helper(); c.t.Logf("%8.2f s  %.80s", time.Since(begun).Seconds(), what) }
}

// cove runs a command of Cove's that has to succeed.
func (c *corpus) cove(args ...string) string {
	c.t.Helper()
	defer c.took("cove " + strings.Join(args, " "))()
	return c.lab.cove(args...)
}

// beside runs plain git.
func (c *corpus) beside(git gittest.Git, args ...string) {
	c.t.Helper()
	defer c.took("git " + strings.Join(args, " "))()
	git.Run(args...)
}

// plain is a git beside Cove, which has the person's login.
func (c *corpus) plain(dir string) gittest.Git {
	login := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("robot:"+password))
	git := gittest.NewGit(c.t, dir, "GIT_SSL_CAINFO="+c.server.CA, "GIT_CONFIG_COUNT=3", "PLAIN=1",
		"GIT_CONFIG_KEY_2=safe.directory", "GIT_CONFIG_VALUE_2=*",
		"GIT_CONFIG_KEY_0=http.extraHeader", "GIT_CONFIG_VALUE_0="+login,
		"GIT_CONFIG_KEY_1=protocol.file.allow", "GIT_CONFIG_VALUE_1=always")
	return git.With("GIT_AUTHOR_DATE=2001-02-03T04:05:06Z", "GIT_COMMITTER_DATE=2001-02-03T04:05:06Z")
}

// serve puts a repository on the server, with all of its refs.
func (c *corpus) serve(git gittest.Git, of, branch string) *gittest.Repository {
	dir := filepath.Join(c.server.Root, of)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		c.t.Fatal(err)
	}
	git.Run("clone", "-q", "--mirror", ".", dir)
	r := &gittest.Repository{Git: gittest.NewGit(c.t, dir), Path: of, URL: c.server.URL(of)}
	r.Run("remote", "remove", "origin")
	r.Run("symbolic-ref", "HEAD", "refs/heads/"+branch)
	for _, key := range []string{"http.receivepack", "uploadpack.allowFilter", "receive.advertisePushOptions"} {
		r.Run("config", key, "true")
	}
	return r
}

// sh runs a script beside Cove, and returns what it says.
func sh(git gittest.Git, t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", fixed+script)
	cmd.Dir, cmd.Env = git.Dir, git.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// inside runs a script in a sandbox, where it must succeed.
func (c *corpus) inside(box, script string) string {
	c.t.Helper()
	defer c.took("inside: " + script)()
	out, code := c.in(box, "set -e\n"+fixed+script)
	if code != 0 {
		c.t.Fatalf("%s in %s: exit code %d\n%s", script, box, code, out)
	}
	return out
}

// same runs a script in a sandbox and beside it, and compares what both say.
func (c *corpus) same(box string, git gittest.Git, script string) {
	c.t.Helper()
	in := c.inside(box, script)
	done := c.took("plain git: " + script)
	if out := sh(git, c.t, script); in != out {
		c.t.Errorf("%s\nin the sandbox:\n%s\nplain git:\n%s", script, in, out)
	}
	done()
}

// address is "cove new" of the server's address beside "git clone".
func (c *corpus) address(s shape, name string, r *gittest.Repository) {
	t, box := c.t, name+"-a"
	empty := r.Try("rev-parse", "-q", "--verify", "HEAD").Code != 0
	git := c.plain(c.t.TempDir())
	c.beside(git, slices.Concat([]string{"clone", "-q"}, s.clone, []string{r.URL, "a"})...)
	git = git.In("a")
	git.Run("checkout", "-q", "-b", "own")
	if s.sparse != nil {
		git.Run(append([]string{"sparse-checkout", "set"}, s.sparse...)...)
	}
	c.cove(slices.Concat([]string{"new", c.remote(r.Path), "own", "--name", box, "--no-attach"}, s.flags)...)
	c.same(box, git, "git config gc.auto 0") // it would work beside fsck
	if !empty {
		c.same(box, git, said+"\ngit rev-parse HEAD")
	}
	if s.check != "" {
		c.same(box, git, s.check)
	}
	base := git.Try("rev-parse", "-q", "--verify", "HEAD")
	commit := "\ngit add -A; git commit -q -m Work; git rev-parse HEAD; "
	c.same(box, git, s.edit+commit+said)
	c.inside(box, "git push -q origin HEAD")
	if got, want := r.Run("rev-parse", "refs/heads/own"), git.Run("rev-parse", "HEAD"); got != want {
		t.Errorf("pushed from inside is %s, want %s", got, want)
	}
	c.same(box, git, "echo more >more.txt"+commit)
	if base.Code == 0 {
		c.differs(box, git, strings.TrimSpace(base.Stdout))
	}
	out, said := c.pull(box)
	if want := "https://" + host + "/owner/" + name + "/pull/7\n"; !empty && out != want {
		t.Errorf("the pull request is %q, want %q\n%s", out, want, said)
	}
	if got, want := r.Run("rev-parse", "refs/heads/own"), git.Run("rev-parse", "HEAD"); got != want {
		t.Errorf("pushed with the pull request is %s, want %s", got, want)
	}
	c.same(box, git, "echo again >>more.txt"+commit)
	c.cove("push", box, "--yes")
	if got, want := r.Run("rev-parse", "refs/heads/own"), git.Run("rev-parse", "HEAD"); got != want {
		t.Errorf("pushed from the host is %s, want %s", got, want)
	}
	r.Run("fsck", "--no-dangling")
	if s.check != "" {
		pushed := c.plain(t.TempDir())
		pushed.Run("clone", "-q", "-b", "own", r.URL, "a")
		c.same(box, pushed.In("a"), s.check)
	}
	c.cove("destroy", "--yes", box)
}

// differs compares "cove diff" with git's, by what git makes of the patch.
func (c *corpus) differs(box string, git gittest.Git, base string) {
	c.t.Helper()
	aside := git.With("GIT_INDEX_FILE=" + filepath.Join(c.t.TempDir(), "index"))
	aside.Run("read-tree", base)
	if got := aside.TryWith(c.cove("diff", box), "apply", "--cached", "--whitespace=nowarn", "-"); got.Code != 0 {
		c.t.Errorf("the patch of cove diff: %s", got.Stderr)
		return
	}
	if got, want := aside.Run("write-tree"), git.Run("rev-parse", "HEAD^{tree}"); got != want {
		c.t.Errorf("the patch of cove diff makes the tree %s, want %s", got, want)
	}
	if got, want := c.cove("diff", box, "--name-only"), git.Run("diff", "--name-only", base)+"\n"; got != want {
		c.t.Errorf("cove diff --name-only is\n%s, and of plain git\n%s", got, want)
	}
}

// pull opens a pull request where no gh is.
func (c *corpus) pull(box string) (stdout, stderr string) {
	cmd := c.command("pr", box, "--yes")
	cmd.Env = append(cmd.Env, "PATH="+c.lab.dir)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Run()
	return out.String(), said.String()
}

// folder is "cove new" of a folder with uncommitted work.
func (c *corpus) folder(s shape, name string, git gittest.Git, r *gittest.Repository) {
	t, box := c.t, name+"-f"
	// tree is that of all files of a folder, as "git add -A" would have it.
	tree := func(git gittest.Git) string {
		t.Helper()
		index := filepath.Join(t.TempDir(), "index")
		data, err := os.ReadFile(filepath.Join(git.Run("rev-parse", "--absolute-git-dir"), "index"))
		if err == nil {
			err = os.WriteFile(index, data, 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		aside := git.With("GIT_INDEX_FILE=" + index)
		aside.Run("add", "-A")
		return aside.Run("write-tree")
	}
	state := func() string {
		return git.Run("status", "--porcelain=v2", "--branch") + git.Run("for-each-ref") +
			git.Run("config", "--local", "--list") + git.Run("fsck", "--no-dangling", "--no-progress")
	}
	sh(git, t, "echo mine >>README; echo new >uncommitted.txt")
	want, before := tree(git), state()
	// The index does not tell which files are as committed, as in a folder that was copied.
	for i, name := range strings.FieldsFunc(git.Run("ls-files", "-z"), func(r rune) bool { return r == 0 }) {
		if info, err := os.Lstat(filepath.Join(git.Dir, name)); i < 50 && err == nil && info.Mode().IsRegular() {
			sure(os.Chtimes(filepath.Join(git.Dir, name), time.Unix(1, 0), time.Unix(1, 0)))
		}
	}
	cmd := c.command("new", ".", "folder", "--uncommitted", "--name", box, "--no-attach")
	cmd.Dir = git.Dir
	out, err := cmd.CombinedOutput()
	if s.refused != "" {
		if err == nil || !strings.Contains(string(out), s.refused) || state() != before {
			t.Errorf("cove new: %v\n%s", err, out)
		}
		if left, _ := c.command("info", box).CombinedOutput(); !strings.Contains(string(left), "there is no sandbox") {
			t.Errorf("left is %s", left)
		}
		return
	}
	if err != nil {
		t.Fatalf("cove new: %v\n%s", err, out)
	}
	if got := c.inside(box, "git rev-parse HEAD^{tree}; git status --porcelain"); got != want+"\n" {
		t.Errorf("in the sandbox is %q, want %s", got, want)
	}
	if base := git.Try("rev-parse", "-q", "--verify", "HEAD"); base.Code == 0 {
		if got := c.inside(box, "git rev-parse HEAD~"); got != base.Stdout {
			t.Errorf("the sandbox begins on top of %q, want %q", got, base.Stdout)
		}
	}
	c.inside(box, "git config gc.auto 0\n"+s.edit+"\ngit add -A; git commit -q -m Work; git fsck --no-dangling")
	if after := state(); after != before {
		t.Errorf("the person's repository was\n%s\nand is\n%s", before, after)
	}
	if !s.local {
		c.cove("push", box, "--yes")
		if got, want := r.Run("rev-parse", "refs/heads/folder")+"\n", c.inside(box, "git rev-parse HEAD"); got != want {
			t.Errorf("pushed is %s, want %s", got, want)
		}
		c.inside(box, "git commit -q --allow-empty -m more; git push -q")
		r.Run("fsck", "--no-dangling")
	}
	c.cove("apply", box, "--to", git.Dir)
	if got, want := tree(git)+"\n", c.inside(box, "git rev-parse HEAD^{tree}"); got != want {
		t.Errorf("applied is %s, want %s\n%s", got, want, git.Run("status", "--short"))
	}
	c.cove("destroy", "--yes", box)
}

// issue is "cove start" of the server's address.
func (c *corpus) issue(r *gittest.Repository, main string) {
	cmd := c.command("start", "7", "--repo", c.remote(r.Path), "--agent", "scripted", "--prompt-file", "-")
	cmd.Stdin = strings.NewReader("# Mend it\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("cove start: %v\n%s", err, out)
	}
	if got := r.Run("show", "refs/heads/issue-7-mend-it:fixed.txt"); got != "fixed" {
		c.t.Errorf("the branch has %q", got)
	}
	if r.Try("rev-parse", "-q", "--verify", main).Code == 0 {
		if got := r.Run("diff", "--name-status", main, "refs/heads/issue-7-mend-it"); got != "A\tfixed.txt" {
			c.t.Errorf("the branch has changed %q", got)
		}
	}
}
