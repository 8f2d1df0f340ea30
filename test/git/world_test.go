//go:build linux

package git

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

const (
	modules = "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = ../lib.git\n"
	hostile = "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch\n"
)

// world makes a repository as others have them: with files that git itself reads
// (.gitattributes, .gitmodules) at the top and below, a submodule and large files (LFS).
func (l *lab) world(of string) *gittest.Repository {
	r := l.server.Create(of)
	author := l.author(r)
	author.Run("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("2b", 20)+",vendor/lib")
	const large = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
	add(author, "files that git reads", ".gitattributes", "* text=auto\n"+large, ".gitmodules", modules,
		"docs/.gitattributes",
		"*.md diff=markdown\n", "docs/a.md", "a\n", "assets/logo.bin", "version https://git-lfs.github.com/spec/v1\n")
	add(author, "other attributes", ".gitattributes", "* text=auto eol=lf\n"+large)
	author.Run("push", "-q", "origin", "HEAD:main")
	return r
}

// history adds to a world what grows in years: a tag, a branch that has gone another
// way, and files that git reads and that no fsck of today takes.
func (l *lab) history(r *gittest.Repository) {
	author := l.author(r)
	author.Run("tag", "-a", "-m", "one", "v1", "HEAD~")
	add(author, "data of tests", "test/data/.gitmodules", hostile, "test/data/notes.txt", hostile, "test/data/x", "x\n",
		"notes.txt", hostile, "old/.gitattributes", "*.txt "+strings.Repeat("a", 4096)+"\n", "old/file", "1\n")
	author.Run("push", "-q", "--tags", "origin", "HEAD:main")
	add(author, "another line of work", ".gitattributes", "* text=auto eol=lf\n*.png binary\n", "docs/topic.md", "t\n",
		"topic/file", "t\n")
	author.Run("push", "-q", "origin", "HEAD:release/1")
}

// author is a git that works on a repository beside the gateway.
func (l *lab) author(r *gittest.Repository) gittest.Git {
	git := gittest.NewGit(l.t, l.t.TempDir())
	git.Run("clone", "-q", r.Dir, "a")
	return git.In("a")
}

// add commits files, and leaves submodules as they are.
func add(git gittest.Git, message string, files ...string) {
	for i := 0; i < len(files); i += 2 {
		git.Write(files[i], files[i+1])
		git.Run("add", files[i])
	}
	git.Run("commit", "-q", "-m", message)
}

// change is what a sandbox commits on top of a branch and pushes to branches of its
// own. It has to have something of the server's for that, or is left out.
type change struct {
	name string
	on   string // main if empty
	has  string
	do   func(git gittest.Git, push func())
	says string // of the refusal; it goes through if empty
}

const refused = "malformed or dangerous: git fsck reports gitmodulesUrl of "

func changes() []change {
	type g = gittest.Git
	commit := func(files ...string) func(g, func()) { return func(git g, _ func()) { git.Commit("work", files...) } }
	move := func(from, to string, files ...string) func(g, func()) {
		return func(git g, _ func()) { git.Run("mv", "-f", from, to); git.Commit("move", files...) }
	}
	return []change{
		{name: "at the top", do: commit("README", "more\n")},
		{name: "below", do: commit("docs/a.md", "b\n", "docs/new/b.md", "b\n")},
		{name: "beside what no fsck of today takes", do: commit("old/file", "2\n", "test/data/x", "y\n")},
		{name: "a large file", do: commit("assets/new.bin", "version https://git-lfs.github.com/spec/v1\n")},
		{name: "other attributes", do: commit(".gitattributes", "*.sh eol=lf\n", "docs/.gitattributes", "*.md text\n")},
		{name: "on top of other attributes", do: func(git g, push func()) {
			git.Commit("attributes", ".gitattributes", "* -text\n", "docs/.gitattributes", "*.md -text\n",
				".gitmodules", modules+"\tbranch = main\n")
			push()
			git.Commit("work", "README", "more\n", "docs/a.md", "c\n")
			push()
			git.Commit("more", "README", "even more\n", "docs/a.md", "d\n")
		}},
		{name: "attributes that come back", do: func(git g, push func()) {
			git.Run("rm", "-q", ".gitattributes")
			git.Commit("without")
			push()
			git.Run("checkout", "-q", "HEAD~", "--", ".gitattributes")
			git.Commit("with", "README", "with\n")
		}},
		{name: "a submodule", do: func(git g, _ func()) {
			git.Write(".gitmodules", modules+"[submodule \"more\"]\n\tpath = vendor/more\n\turl = https://git.test/more.git\n")
			git.Run("add", ".gitmodules")
			git.Run("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("3c", 20)+",vendor/more")
			git.Run("update-index", "--cacheinfo", "160000,"+strings.Repeat("4d", 20)+",vendor/lib")
			git.Run("commit", "-q", "-m", "more")
		}},
		{name: "a directory of another name", do: move("docs", "manual")},
		{name: "a directory of another name and content", do: move("docs", "manual", "manual/a.md", "b\n")},
		{name: "attributes of an ordinary file", do: func(git g, _ func()) {
			git.Run("mv", "-f", "docs/a.md", "docs/.gitattributes")
			git.Commit("move")
		}},
		{name: "on an old commit", on: "v1", has: "v1", do: commit("README", "old\n", "docs/a.md", "old\n")},
		{name: "a merge", has: "origin/release/1~1", do: func(git g, _ func()) {
			git.Commit("work", "README", "more\n")
			git.Run("merge", "-q", "-m", "merge", "origin/release/1")
		}},
		{name: "files of another branch", has: "origin/release/1", do: func(git g, _ func()) {
			git.Run("checkout", "-q", "origin/release/1", "--", ".gitattributes", "docs/topic.md")
			git.Commit("taken")
		}},
		{name: "hostile modules", do: commit(".gitmodules", hostile), says: refused},
		{name: "hostile modules below", do: commit("docs/.GITMODULES", hostile), says: refused},
		{name: "hostile modules that are undone", do: func(git g, _ func()) {
			git.Commit("bad", ".gitmodules", hostile)
			git.Commit("good", ".gitmodules", modules)
		}, says: refused},
		{name: "hostile modules of a file beside", do: move("notes.txt", ".gitmodules"), says: refused},
		{name: "hostile modules of a file below", do: move("test/data/notes.txt", ".gitmodules"), says: refused},
		{name: "hostile modules of data of tests", do: move("test/data/.gitmodules", ".gitmodules"), says: refused},
	}
}

// TestWorld: pushes of a repository with files that git reads go through, however
// much of it the sandbox has, and a dangerous file that is pushed does not.
func TestWorld(t *testing.T) {
	for name, filter := range map[string]string{"a server with filters": "true", "a plain server": "false"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, account)
			r := l.world("repo.git")
			l.history(r)
			r.Run("config", "uploadpack.allowFilter", filter)
			git, _ := l.client("box", l.policy(`- remote: REPO
  fetch: [well-known, "own/**", "refs/tags/**"]
  push: own/**
  files: {defaults: false}
`))
			for kind, flags := range map[string]string{
				"whole": "", "shallow": "--depth=1 --no-single-branch", "one branch": "--single-branch --no-tags",
				"partial": "--filter=blob:none --sparse",
			} {
				if filter == "false" && kind != "whole" {
					continue
				}
				git.Run(slices.Concat([]string{"clone", "-q"}, strings.Fields(flags), []string{l.remote("repo.git"), kind})...)
				git := git.In(kind)
				for i, c := range changes() {
					if c.has != "" && git.Try("rev-parse", "-q", "--verify", c.has).Code != 0 {
						continue
					}
					t.Run(kind+": "+c.name, func(t *testing.T) {
						testChange(t, l, r, git, c, fmt.Sprintf("refs/heads/own/%s-%d", kind[:3], i))
					})
				}
			}
		})
	}
}

func testChange(t *testing.T, l *lab, r *gittest.Repository, git gittest.Git, c change, ref string) {
	git.Run("checkout", "-q", "-f", "--detach", cmp.Or(c.on, "origin/main"))
	git.Run("clean", "-qfdx")
	if git.Run("config", "--default=", "core.sparseCheckout") == "true" {
		git.Run("sparse-checkout", "set", "docs", "manual", "test/data", "old", "assets")
	}
	push := func() gittest.Result { return git.Try("push", "--atomic", "origin", "HEAD:"+ref, "HEAD:"+ref+"-too") }
	c.do(git, func() {
		if got := push(); got.Code != 0 {
			t.Errorf("a step: %+v\n%s", got, l.log)
		}
	})
	before := r.Refs()
	got := push()
	went, after := got.Code == 0, r.Refs()
	if went != (c.says == "") || !strings.Contains(got.Stderr, c.says) {
		t.Errorf("%+v\n%s", got, l.log)
	}
	if there := strings.Contains(after, ref+"-too "+git.Run("rev-parse", "HEAD")+"\n"); there != went || !went &&
		after != before {
		t.Errorf("the server has\n%s", after)
	}
}
