//go:build linux

package git

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// in runs a script in a long-lived sandbox, and returns what it says and its exit code.
func (l *lab) in(name, script string) (string, int) {
	l.t.Helper()
	cmd := l.command("exec", name, "--", "sh", "-c", script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		l.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// lasting has a background server of Cove's end with the test.
func (l *lab) lasting() {
	l.t.Cleanup(func() {
		names, _ := l.command("list", "-q").Output()
		for _, name := range strings.Fields(string(names)) {
			if out, err := l.command("destroy", "--yes", name).CombinedOutput(); err != nil {
				l.t.Errorf("destroying %s: %s", name, out)
			}
		}
		l.command("server", "stop").Run()
	})
}

// TestWorktree: git in a sandbox whose repository is outside fetches and pushes
// through a way out with the policy of the sandbox's repository.
func TestWorktree(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	r := l.world("repo.git")
	r.Branch("other", "main")
	l.cove("new", l.remote("repo.git"), "own", "--worktree", "--name", "box", "--no-attach")
	for _, c := range []struct {
		script string
		code   int
		want   string
	}{
		{"git config --global user.name A && git config --global user.email a@x.example", 0, ""},
		{"git status -sb", 0, "## own"},
		{"git remote -v", 0, l.remote("repo.git")},
		{"git commit -q --allow-empty -m work && git push", 0, "own -> own"},
		{"git push origin HEAD:main", 128, "is not this sandbox's branch"},
		{"git fetch -v", 0, "main"},
		{"git branch -a", 0, "remotes/origin/main"},
		{"git ls-remote", 0, "refs/heads/main"},
		{"git pull --no-rebase origin main", 0, "Already up to date"},
		{"git reset -q --hard HEAD~1 && git commit -q --allow-empty -m other && git push", 1, "rejected"},
	} {
		if out, code := l.in("box", c.script); code != c.code || !strings.Contains(out, c.want) ||
			strings.Contains(out, "other") && !strings.Contains(c.script, "other") {
			t.Errorf("%s: %d\n%s", c.script, code, out)
		}
	}
	if refs := r.Refs(); !strings.Contains(refs, "refs/heads/own ") {
		t.Errorf("%s", refs)
	}
	// Force is what the policy says of it, here as through the gateway.
	l.write("force.yaml", "mode: limited\ngit:\n  - remote: "+
		l.remote("repo.git")+"\n    push: [forced]\n    force: allow\n")
	l.cove("new", l.remote("repo.git"), "forced", "--worktree", "--name", "strong", "--no-attach", "--policy",
		l.path("force.yaml"))
	const commit = "git -c user.name=A -c user.email=a@x.example commit -q --allow-empty -m "
	for _, c := range []struct {
		name, script string
		code         int
		want         string
	}{
		{"box", "git push --force", 128, "not allowed in this sandbox"},
		{"box", "git push origin +own", 128, "not allowed in this sandbox"},
		{"strong", commit + "one && git push", 0, "forced -> forced"},
		{"strong", "git reset -q --hard HEAD~1 && " + commit + "two && git push", 1, "rejected"},
		{"strong", "git push --force", 0, "(forced update)"},
		{"strong", "git push --force origin HEAD:main", 128, "is not this sandbox's branch"},
	} {
		if out, code := l.in(c.name, c.script); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s in %s: %d\n%s", c.script, c.name, code, out)
		}
	}
	// The host brings the same work back, running or not.
	l.in("box",
		"git fetch -q && git reset -q --hard origin/own && git commit -q --allow-empty -m more && echo later > later.txt")
	for _, state := range []string{"running", "stopped"} {
		if out := l.cove("diff", "box", "--name-only"); out != "later.txt\n" {
			t.Errorf("diff: %s", out)
		}
		if out := l.cove("log", "box", "--oneline"); !strings.Contains(out, " more\n") || strings.Count(out, "\n") != 2 {
			t.Errorf("log: %s", out)
		}
		if state == "running" {
			l.cove("stop", "box")
		}
	}
	l.cove("push", "box", "--yes")
	if log := r.Run("log", "--format=%s", "-1", "own"); strings.TrimSpace(log) != "more" {
		t.Errorf("pushed: %s", log)
	}
	if log, _ := os.ReadFile(l.path(home + "/logs/server.log")); t.Failed() {
		t.Logf("%s", log)
	}
}

// ownRepository is a lab with Cove and a person's repository, and no server of git.
func ownRepository(t *testing.T) (*lab, gittest.Git) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a root filesystem of another owner")
	}
	l := &lab{t: t, log: &output{}}
	var err error
	if l.dir, err = os.MkdirTemp("", "cove-git-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.build()
	l.write("cove.yaml", "")
	l.lasting()
	git := gittest.NewGit(t, l.dir)
	git.Run("init", "-q", "-b", "main", "person")
	return l, git.In("person")
}

// TestWorktreeBisect: "git bisect run" in a sandbox says what it says without Cove and finds the same commit, and its
// command runs in the sandbox. Notes stay in it.
func TestWorktreeBisect(t *testing.T) {
	l, git := ownRepository(t)
	for i := range 8 {
		git.Commit(fmt.Sprint("count ", i+1), "n", fmt.Sprintln(i+1))
	}
	git.Run("branch", "own")
	l.cove("new", l.path("person"), "own", "--worktree", "--name", "box", "--no-attach")
	git.Run("clone", "-q", "-b", "own", ".", "../twin")
	twin := git.In("../twin")
	twin.Run("branch", "-q", "--unset-upstream")
	const test = "test $(cat n) -lt 5"
	// Older versions of git say the same with spaces too many, without the end of a line, and later or earlier.
	plain := strings.NewReplacer("running  ", "running ", "from ' 'sh'", "from 'sh'", "'' is <", "' is <",
		"found first bad commit", "found first bad commit\n").Replace
	normal := func(said string) string {
		lines := strings.FieldsFunc(plain(said), func(r rune) bool { return r == '\n' })
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	for _, script := range []string{
		"git bisect start HEAD HEAD~7 && git bisect run sh -c '" + test + "'",
		"git bisect log; git bisect reset",
		"git bisect start HEAD HEAD~7; git bisect run; git bisect run sh -c 'exit 130'; git rev-parse HEAD; git bisect reset",
		"git bisect start HEAD HEAD~7; git bisect run sh -c 'exit 126'; git rev-parse HEAD; git bisect reset",
		"git bisect start HEAD HEAD~7; git bisect run sh -c 'exit 125'; git bisect log; git bisect reset",
		"git bisect start --term-old=few --term-new=many HEAD HEAD~7 -- n; git bisect run sh -c '" + test +
			"'; git bisect reset",
		"git bisect start --no-checkout HEAD HEAD~7; " +
			"git bisect run sh -c 'git show BISECT_HEAD:n | grep -q [123]'; git bisect reset",
	} {
		script += "; echo = $?"
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir, cmd.Env = twin.Dir, append(os.Environ(), "GIT_PAGER=cat")
		want, _ := cmd.CombinedOutput()
		out, _ := l.in("box", script)
		if got, want := normal(out), normal(string(want)); got != want {
			t.Errorf("%s\n%s\nwant\n%s", script, got, want)
		}
	}
	for _, c := range []struct {
		script string
		code   int
		want   string
	}{
		{"git bisect run touch ran", 1, "no bisection has been started"},
		{"git bisect start; git bisect run touch ran", 1, "waiting for both good and bad commits"},
		{"git bisect bad; git bisect run touch ran", 1, "waiting for good commit(s)"},
		{"git bisect reset; git config --global user.name A; git config --global user.email a@x.example", 0, ""},
		{"git bisect start HEAD HEAD~7 && mkdir -p /tmp/d && cd /tmp/d && git -C /workspace bisect run sh -c " +
			"'echo $(id -u) $(pwd) >>/tmp/bisect-ran'; cat /tmp/bisect-ran; git -C /workspace bisect reset", 0,
			"1000 /workspace\n"},
		{"git notes add -m inside && git notes show", 0, "inside"},
		{"git push origin refs/notes/commits", 128, "not"},
	} {
		if out, code := l.in("box", c.script); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d\n%s", c.script, code, out)
		}
	}
	if _, err := os.Lstat("/tmp/bisect-ran"); err == nil {
		t.Error("the command of a bisection ran on the host")
	}
	if refs := git.Run("for-each-ref"); strings.Contains(refs, "notes") || strings.Contains(refs, "bisect") {
		t.Errorf("the person's repository has\n%s", refs)
	}
}

// TestWorktreeAttempts: a program in a sandbox on a person's repository attacks that repository with git. Each command
// ends with the exit code of its row and has no effect: git shows and changes no other branch, the person's files stay
// as they are, and git runs no program that a file or a setting names.
func TestWorktreeAttempts(t *testing.T) {
	l, git := ownRepository(t)
	git.Commit("first", "a.txt", "one\ntwo\n")
	git.Run("tag", "v1.0")
	git.Run("checkout", "-q", "-b", "secret")
	git.Commit("hush hush", "secret.txt", "hush\n")
	git.Run("checkout", "-q", "main")
	secret, blob := git.Run("rev-parse", "secret"), git.Run("rev-parse", "secret:secret.txt")
	repo := l.path("person")
	l.cove("new", repo, "own", "--worktree", "--name", "box", "--no-attach")
	checkouts, err := filepath.Glob(l.path(home + "/workspaces/sb_*/disk/checkout"))
	if err != nil || len(checkouts) != 1 {
		t.Fatalf("%v, %v", checkouts, err)
	}
	tree := checkouts[0]
	// Canaries: programs, and whatever names them.
	if out, code := l.in("box",
		`printf '#!/bin/sh\ntouch /workspace/ran\ncat\n' > evil && chmod 755 evil && mkdir hooks && for h in pre-commit post-commit post-checkout post-merge pre-push reference-transaction post-index-change; do cp evil hooks/$h; done
printf '* filter=evil diff=evil merge=evil\n' > .gitattributes; printf '[submodule "sub"]\npath=sub\nurl=ext::/workspace/evil\nignore=none\n' > .gitmodules
git config --global user.name A; git config --global user.email a@x.example; git config --global core.fsmonitor /workspace/evil; git config --global diff.external /workspace/evil; git config --global filter.evil.clean /workspace/evil
mkdir sub; cd sub; git init -q; echo x > f; git -c filter.evil.clean=cat -c core.fsmonitor=false add f; git -c core.fsmonitor=false commit -qm x; git config filter.evil.clean /workspace/evil; git config core.fsmonitor /workspace/evil; echo '* filter=evil' > .gitattributes; echo y > f; rm -f /workspace/ran`); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	for _, kv := range [][2]string{{"filter.evil.clean", "/workspace/evil"}, {"filter.evil.smudge", "/workspace/evil"},
		{"diff.evil.textconv", "/workspace/evil"}, {"core.fsmonitor", "/workspace/evil"},
		{"core.hooksPath", "/workspace/hooks"},
		{"merge.evil.driver", "/workspace/evil"}, {"core.editor", "/workspace/evil"}, {"core.pager", "/workspace/evil"},
		{"gpg.program", "/workspace/evil"}} {
		git.Run("config", kv[0], kv[1])
	}
	state := func() string {
		config, err := os.ReadFile(repo + "/.git/config")
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for line := range strings.Lines(git.Run("for-each-ref", "--format=%(refname) %(objectname)")) {
			if !strings.HasPrefix(line, "refs/heads/own ") {
				kept = append(kept, line)
			}
		}
		hooks, _ := os.ReadDir(repo + "/.git/hooks")
		return string(config) + strings.Join(kept, "") + fmt.Sprint(len(hooks))
	}
	before := state()
	table, err := os.ReadFile("testdata/worktree.txt")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for line := range strings.Lines(string(table)) {
		want, script, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " | ")
		if !ok {
			continue // a comment
		}
		tried++
		script = strings.NewReplacer("{SECRET}", secret, "{SEC}", secret[:7], "{BLOB}", blob, "{BLO}", blob[:5], "{REPO}",
			repo).Replace(script)
		out, code := l.in("box", script)
		if got := strconv.Itoa(code); got != strings.TrimSpace(want) {
			t.Errorf("%s: exit code %s, want %s\n%s", script, got, want, out)
		}
		for _, word := range strings.Fields(script) {
			out = strings.ReplaceAll(out, strings.Trim(word, "'"), "")
		}
		if strings.Contains(out, "hush") || strings.Contains(out, "secret") || strings.Contains(out, "root:x:0") ||
			strings.Contains(out, secret[:7]) {
			t.Errorf("%s shows\n%s", script, out)
		}
		for _, name := range []string{"ran", "secret.txt", "out"} {
			if _, err := os.Lstat(tree + "/" + name); err == nil {
				t.Errorf("%s: there is %s\n%s", script, name, out)
				os.Remove(tree + "/" + name)
			}
		}
	}
	if tried < 60 {
		t.Errorf("%d attempts, want at least 60", tried)
	}
	if now := state(); now != before {
		t.Errorf("the person's repository was\n%s\nand is\n%s", before, now)
	}
	git.Run("-c", "core.fsmonitor=false", "fsck", "--strict", "--no-dangling", "--no-reflogs")
}
