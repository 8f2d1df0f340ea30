//go:build linux

package git

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// refusedPush is a push that a rule refuses.
type refusedPush struct {
	name   string
	policy string // beside the remote
	key    string // of the policy, or "" and the rule's name in rule
	rule   string
	path   string // that the message names, if it is about one
	more   string // and what else
	early  string // who refuses it, where nothing has been sent that could be named
	// push makes what is pushed. It returns the object that the message names, and the arguments of git push.
	push func(g gittest.Git) (object string, args []string)
}

// committed pushes one commit of a file to own.
func committed(name, content string) func(g gittest.Git) (string, []string) {
	return func(g gittest.Git) (string, []string) {
		return g.Commit("work", name, content), []string{"origin", "HEAD:refs/heads/own"}
	}
}

// to pushes a commit to a ref.
func to(ref string) func(g gittest.Git) (string, []string) {
	return func(g gittest.Git) (string, []string) {
		return g.Commit("work", "work", "1\n"), []string{"origin", "HEAD:" + ref}
	}
}

var refusals = []refusedPush{
	{name: "another branch", policy: "push: own", key: "push", push: to("refs/heads/main")},
	{name: "no branch", policy: "fetch: [well-known]", key: "push", push: to("refs/heads/own"), more: "only reads",
		early: "the gateway"},
	{name: "a protected branch", policy: `push: ["**"], protected: [own]`, key: "protected", push: to("refs/heads/own")},
	{name: "no updates", policy: "push: own, update: deny", key: "update", push: to("refs/heads/own")},
	{name: "updates that are asked about", policy: "push: own, update: ask", key: "update", push: to("refs/heads/own"),
		more: "need approval"},
	{name: "a branch that is deployed", policy: "own: [production]", key: "own", push: to("refs/heads/production")},
	{name: "force", policy: "push: topic", key: "force", more: "TOPIC", push: func(g gittest.Git) (string, []string) {
		g.Run("checkout", "-q", "topic")
		g.Run("commit", "-q", "--amend", "-m", "another")
		return g.Run("rev-parse", "HEAD"), []string{"--force", "origin", "HEAD:topic"}
	}},
	{name: "a deletion", policy: "push: topic", key: "delete", push: func(g gittest.Git) (string, []string) {
		return g.Run("rev-parse", "origin/topic"), []string{"origin", ":topic"}
	}},
	{name: "a tag", policy: "push: own, tags: deny", key: "push", push: to("refs/tags/v9")},
	{name: "a tag that is asked about", policy: "push: own, tags: ask", key: "tags", push: to("refs/tags/v9")},
	{name: "a tag that is moved", policy: "push: own, tags: allow", key: "tags",
		push: func(g gittest.Git) (string, []string) {
			return g.Commit("work", "work", "1\n"), []string{"--force", "origin", "HEAD:refs/tags/v1"}
		}},
	{name: "options", policy: "push: own", key: "options", more: "does not support push options",
		early: "git", push: func(g gittest.Git) (string, []string) {
			return g.Commit("work", "work", "1\n"), []string{"-o", "ci.skip", "origin", "HEAD:refs/heads/own"}
		}},
	{name: "a large pack", policy: "push: own, max_pack_mb: 1", key: "max_pack_mb", more: "1 MiB",
		push: committed("large", large(2<<20))},
	{name: "many updates", policy: `push: ["own/**"], max_updates: 2`, key: "max_updates",
		push: func(g gittest.Git) (string, []string) {
			return g.Commit("work", "work", "1\n"), []string{"origin", "HEAD:refs/heads/own/1", "HEAD:refs/heads/own/2",
				"HEAD:refs/heads/own/3"}
		}},
	{name: "many deleted files", policy: "push: own, max_deleted: 1", key: "max_deleted", more: "2 files",
		push: func(g gittest.Git) (string, []string) {
			g.Run("rm", "-q", "old/1", "old/2")
			g.Run("commit", "-qm", "clean")
			return g.Run("rev-parse", "HEAD"), []string{"origin", "HEAD:refs/heads/own"}
		}},
	{name: "many deleted branches", policy: `push: [topic, topic2], delete: allow, max_deleted: 1`, key: "max_deleted",
		push: func(g gittest.Git) (string, []string) {
			return g.Run("rev-parse", "origin/topic"), []string{"origin", ":topic", ":topic2"}
		}},
	{name: "a workflow", policy: "push: own", key: "files", path: ".github/workflows/ci.yml",
		push: committed(".github/workflows/ci.yml", "on: push\n")},
	{name: "a workflow of an earlier commit", policy: "push: own", key: "files", path: ".github/workflows/ci.yml",
		push: func(g gittest.Git) (string, []string) {
			id := g.Commit("workflow", ".github/workflows/ci.yml", "on: push\n")
			g.Run("rm", "-q", ".github/workflows/ci.yml")
			g.Run("commit", "-qm", "back")
			return id, []string{"origin", "HEAD:refs/heads/own"}
		}},
	{name: "a link in place of a directory", policy: "push: own", key: "files", path: ".github",
		push: func(g gittest.Git) (string, []string) {
			if err := os.Symlink("old", filepath.Join(g.Dir, ".github")); err != nil {
				panic(err)
			}
			g.Run("add", ".github")
			g.Run("commit", "-qm", "link")
			return g.Run("rev-parse", "HEAD"), []string{"origin", "HEAD:refs/heads/own"}
		}},
	{name: "a file that the policy blocks", policy: "push: own, files: {block: [deploy/**]}", key: "files",
		path: "deploy/x", push: committed("deploy/x", "x\n")},
	{name: "a secret", policy: `push: own, secrets: [{name: deploy key, pattern: "dk_[0-9]{4}"}]`, key: "secrets",
		path: "conf", more: "line 2", push: committed("conf", "a\ndk_1234\n")},
	{name: "a token", policy: "push: own", key: "known_secrets", path: "conf.env", more: "line 1",
		push: committed("conf.env", "TOKEN=ghp_"+"a8Zq3LmN0pR5tVx7Yb2Dc4Ef6Gh9Jk1Ms3Qw\n")},
	{name: "a token that is asked about", policy: "push: own, known_secrets: ask", key: "known_secrets", path: "conf.env",
		push: committed("conf.env", "TOKEN=ghp_"+"a8Zq3LmN0pR5tVx7Yb2Dc4Ef6Gh9Jk1Ms3Qw\n")},
	{name: "a ref that no policy opens", policy: `push: ["**"]`, rule: "git: protocol", push: to("refs/pull/1/head")},
	{name: "a dangerous submodule", policy: "push: own", rule: "git: content", path: ".gitmodules", more: "gitmodulesUrl",
		push: func(g gittest.Git) (string, []string) {
			g.Commit("module", ".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = -u./evil\n")
			return g.Run("rev-parse", "HEAD:.gitmodules"), []string{"origin", "HEAD:refs/heads/own"}
		}},
	{name: "a git directory", policy: "push: own", rule: "git: content", more: "hasDotgit",
		push: func(g gittest.Git) (string, []string) {
			g.Run("update-index", "--add", "--cacheinfo", "100644,"+g.Run("hash-object", "-w", "old/1")+",x/y")
			tree := g.Run("write-tree", "--prefix=x")
			name := filepath.Join(g.Dir, "tree")
			if err := os.WriteFile(name, append([]byte("40000 .git\x00"), hexed(tree)...), 0o644); err != nil {
				panic(err)
			}
			outer := g.Run("hash-object", "-w", "-t", "tree", "--literally", "tree")
			id := g.Run("commit-tree", "-p", "HEAD", "-m", "evil", outer)
			return outer, []string{"origin", id + ":refs/heads/own"}
		}},
}

// hexed reads an object id.
func hexed(id string) []byte {
	raw := make([]byte, len(id)/2)
	fmt.Sscanf(id, "%x", &raw)
	return raw
}

// TestRefusalsSay: a push that is refused says which object is refused, at which path, by which key of the policy, and
// what to do. There is a row for each key.
func TestRefusalsSay(t *testing.T) {
	l := newLab(t, account)
	l.kill() // with an end for what is asked
	config, err := os.ReadFile(l.path("cove.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.write("cove.yaml", strings.Replace(string(config), "gateway:\n", "gateway:\n  approval_timeout: 1s\n", 1))
	l.start()
	r := l.server.Create("repo.git")
	r.Run("config", "receive.advertisePushOptions", "true")
	work := gittest.NewGit(t, l.dir)
	work.Run("clone", "-q", r.Dir, "seed")
	work = work.In("seed")
	for i := range 3 {
		work.Commit("old", fmt.Sprint("old/", i), fmt.Sprint(i, "\n"))
	}
	work.Run("push", "-q", "origin", "HEAD:main")
	work.Run("tag", "v1")
	topic := work.Commit("topic", "topic", "t\n")
	work.Run("push", "-q", "origin", "v1", "HEAD:topic", "HEAD:topic2")
	work.Commit("hidden", "hidden", "h\n")
	work.Run("push", "-q", "origin", "HEAD:hidden")
	before := r.Refs()
	var keys []string
	for i, c := range refusals {
		keys = append(keys, c.key)
		t.Run(c.name, func(t *testing.T) {
			git, _ := l.client(fmt.Sprint("row", i), l.policy("- {remote: REPO, "+c.policy+"}\n"))
			git.Run("clone", "-q", l.remote("repo.git"), "a")
			git = git.In("a")
			object, args := c.push(git)
			got := git.Try(append([]string{"push"}, args...)...)
			said := strings.ReplaceAll(strings.ReplaceAll(got.Stderr, "remote: ", ""), "\n", " ")
			rule, code := "["+c.key+"]; ", 1
			if c.key == "" {
				rule = "(rule: " + c.rule + ")"
			}
			switch c.early {
			case "the gateway":
				object, code = "", 128
			case "git":
				object, rule = "", ""
			}
			for what, want := range map[string]string{"object": object[:min(12, len(object))], "path": c.path, "rule": rule,
				"more": strings.ReplaceAll(c.more, "TOPIC", topic[:12])} {
				if !strings.Contains(said, want) {
					t.Errorf("it does not name the %s, %q", what, want)
				}
			}
			if got.Code != code || t.Failed() {
				t.Errorf("%q: %d\n%s", args, got.Code, got.Stderr)
			}
			if after := r.Refs(); after != before {
				t.Errorf("the server has changed:\n%s", after)
			}
		})
	}
	slices.Sort(keys)
	if got := slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == "" }); !slices.Equal(got,
		policy.Keys()) {
		t.Errorf("there are rows for %q, want one for each of %q", got, policy.Keys())
	}
}
