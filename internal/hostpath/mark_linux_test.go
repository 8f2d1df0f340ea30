package hostpath

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestMade: what came into being in a mount of what its owner's programs execute is named, git's own first.
func TestMade(t *testing.T) {
	rules := Rules{Guarded: []string{".envrc", ".vscode/tasks.json", ".husky/**", "lefthook.*", "**/.idea/**",
		".config/x*.toml"}}
	git, hooks := cove.MountAllow{Git: true}, cove.MountAllow{Hooks: true}
	type links map[string]string
	for _, c := range []struct {
		holds, made []string
		links       links
		allow       cove.MountAllow
		git, files  string
	}{
		{holds: []string{"file"}, made: []string{"other", "dir/file", "HEAD"}},
		{made: []string{".git/HEAD", ".envrc", "z"}, git: ".git", files: ".envrc"},
		{made: []string{"a/b/.git/config", "a/b/.envrc", "a/.envrc"}, git: "a/b/.git", files: "a/b/.envrc"},
		{made: []string{".git/HEAD", ".git/modules/x/HEAD", ".git/modules/x/objects/", ".git/modules/x/refs/"}, git: ".git"},
		{made: []string{"a/.git"}, git: "a/.git"},
		{made: []string{"a/HEAD", "a/objects/", "a/refs/"}, git: "a"},
		{made: []string{"HEAD", "objects/", "refs/"}, git: "."},
		{made: []string{"s/HEAD", "s/commondir", "c/objects/", "c/refs/", "c/config"}, git: "c s"},
		{holds: []string{"s/HEAD", "c/objects/", "c/refs/"}, made: []string{"s/commondir", "c/hooks/pre-commit"}, git: "c s"},
		{holds: []string{"lefthook.yml", ".config/"}, made: []string{"lefthook.json", "sub/lefthook.yml", ".idea/x",
			".config/x.toml", ".config/y.toml"}, files: ".idea lefthook.json .config/x.toml"},
		{holds: []string{".git/HEAD", ".envrc", ".husky/x"}, made: []string{".vscode/tasks.json", ".husky/y"},
			files: ".vscode/tasks.json"},
		{links: links{".git": "elsewhere", "a": ".", ".envrc": "nothing"}, git: ".git", files: ".envrc"},
		{links: links{".vscode": "/etc"}, files: ".vscode"},
		{holds: []string{".git/hooks/", ".git/config"}, allow: git, made: []string{".git/commondir", ".git/x", ".envrc"},
			git: ".git/commondir", files: ".envrc"},
		{holds: []string{".git/hooks/", ".git/config"}, allow: git, made: []string{".git/rebase-merge/git-rebase-todo",
			".git/worktrees/y/commondir", "a/.git/config"}, git: ".git/rebase-merge a/.git .git/worktrees/y"},
		{allow: hooks, made: []string{".git/HEAD", ".envrc"}, git: ".git"},
	} {
		base := tree(t, c.holds...)
		o, err := rules.Open(t.Context(), base, Wish{Allow: c.allow})
		if err != nil {
			t.Fatal(err)
		}
		mark := *o.Mark
		o.Close()
		if nothing := mark.Made(t.Context()); nothing.Any() {
			t.Errorf("%q: before anything was made: %+v", c.holds, nothing)
		}
		grow(t, base, c.made...)
		for name, target := range c.links {
			if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
				t.Fatal(err)
			}
		}
		got := mark.Made(t.Context())
		if want := (Deciding{Git: strings.Fields(c.git), Files: strings.Fields(c.files)}); got.Beyond != "" ||
			fmt.Sprint(got.Deciding) != fmt.Sprint(want) {
			t.Errorf("%q, %q, %v: %+v, want %+v", c.holds, c.made, c.links, got, want)
		}
	}
	for _, w := range []Wish{{ReadOnly: true}, {Allow: cove.MountAllow{Git: true, Hooks: true}}} {
		o, err := rules.Open(t.Context(), tree(t), w)
		if err != nil || o.Mark != nil {
			t.Errorf("%+v: %+v, %v", w, o, err)
		}
		o.Close()
	}
}

// TestMadeBeyondBounds: the search goes on where it can, and says where it could not.
func TestMadeBeyondBounds(t *testing.T) {
	base := tree(t, "plain")
	o, err := Rules{Guarded: []string{".envrc"}}.Open(t.Context(), base, Wish{})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	grow(t, base, strings.Repeat("d/", maxDepth+1), "z/.git/HEAD", ".envrc")
	got := o.Mark.Made(t.Context())
	if !strings.Contains(got.Beyond, "directories deep") || fmt.Sprint(got.Git, got.Files) != "[z/.git] [.envrc]" {
		t.Errorf("%+v", got)
	}
	for i := range maxGuards + 1 {
		grow(t, base, fmt.Sprintf("r%d/.git/HEAD", i))
	}
	if got := o.Mark.Made(t.Context()); got.Beyond == "" || len(got.Git) < maxGuards {
		t.Errorf("%+v", got)
	}
	if err := os.Rename(base, base+"-aside"); err != nil {
		t.Fatal(err)
	}
	if got := o.Mark.Made(t.Context()); !strings.Contains(got.Beyond, "cannot be searched") {
		t.Errorf("%+v", got)
	}
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := o.Mark.Made(t.Context()); !strings.Contains(got.Beyond, "another directory") {
		t.Errorf("%+v", got)
	}
}

// TestMadeText states the sentences.
func TestMadeText(t *testing.T) {
	const look = ": look at that before you use the directory"
	for _, c := range []struct {
		made Made
		text string
		path []string
	}{
		{Made{Source: "/p", Deciding: Deciding{Git: []string{".git"}, Files: []string{".envrc", "a\x1b[0m\n"}}},
			"the sandbox made .git in /p, which decides what your git executes there, and .envrc, \"a\\x1b[0m\\n\" in /p" + look,
			[]string{"/p/.git", "/p/.envrc", "/p/a\x1b[0m\n"}},
		{Made{Source: "/p", Deciding: Deciding{Files: strings.Fields("a b c d e f g")}, Beyond: "it is large"},
			"the sandbox made a, b, c, d, e and 2 more in /p" + look +
				"; /p was not searched to the end for what the sandbox made (it is large)",
			[]string{"/p/a", "/p/b", "/p/c", "/p/d", "/p/e", "/p/f", "/p/g"}},
		{Made{Source: "/p", Beyond: "it is large"},
			"/p was not searched to the end for what the sandbox made (it is large)", nil},
	} {
		if got := c.made.Text(); got != c.text || !reflect.DeepEqual(c.made.Paths(), c.path) {
			t.Errorf("%q, %q", got, c.made.Paths())
		}
	}
}
