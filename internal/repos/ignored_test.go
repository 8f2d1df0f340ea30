package repos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestIgnored: ignored files that are named are in the checkout as they are, git ignores them there, and nothing else
// of the directory comes with them.
func TestIgnored(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	stir(t, dir)
	put(t, dir, ".gitignore", "*.log\nnode_modules\n.venv\n")
	put(t, dir, "node_modules/left/index.js", "module.exports = 1\n")
	put(t, dir, "node_modules/.bin/run", "#!/bin/sh\n")
	put(t, dir, ".venv/bin/python", "no\n")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(filepath.Join(dir, "node_modules/.bin/run"), 0o755))
	must(os.Symlink("../left/index.js", filepath.Join(dir, "node_modules/.bin/left")))
	must(os.Symlink("/etc", filepath.Join(dir, "node_modules/etc")))
	must(unix.Mkfifo(filepath.Join(dir, "node_modules/pipe"), 0o600))
	old := time.Unix(1_000_000_000, 0)
	must(os.Chtimes(filepath.Join(dir, "node_modules/left/index.js"), old, old))
	for name, uncommitted := range map[string]bool{"quiet-heron": true, "loud-heron": false} {
		w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: name, User: cove.CodeUser, Owner: owner,
			Repository: &workspace.Repository{Source: dir, Uncommitted: uncommitted,
				Ignored: []string{"node_modules/", "./private", "node_modules"}}})
		for name, want := range map[string]string{"node_modules/left/index.js": "module.exports = 1",
			"node_modules/.bin/left": "module.exports = 1", "private": "ignored, too",
			".venv/bin/python": "no such file or directory", "noise.log": "no such file or directory",
			"node_modules/pipe": "no such file or directory"} {
			if g := got(t, w.Directory, name); g != want {
				t.Errorf("%s: %q, want %q", name, g, want)
			}
		}
		if to, err := os.Readlink(filepath.Join(w.Directory, "node_modules/etc")); err != nil || to != "/etc" {
			t.Errorf("the link is %q, %v", to, err)
		}
		info, err := os.Stat(filepath.Join(w.Directory, "node_modules/.bin/run"))
		if err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("the program: %v, %v", info, err)
		}
		if info, err = os.Stat(filepath.Join(w.Directory, "node_modules/left/index.js")); err != nil ||
			!info.ModTime().Equal(old) {
			t.Errorf("the time: %v, %v", info, err)
		}
		if out := plain(t, w.Directory, "status", "--porcelain"); out != "" {
			t.Errorf("it begins with changes:\n%s", out)
		}
	}
}

func TestIgnoredRefuses(t *testing.T) {
	s := newStore(t, nil)
	dir := project(t)
	stir(t, dir)
	for name, code := range map[string]cove.Code{"changed": cove.InvalidArgument, "new": cove.InvalidArgument,
		"nothing": cove.NotFound, "../x": cove.InvalidArgument, ".": cove.InvalidArgument, "": cove.InvalidArgument,
		"/etc": cove.InvalidArgument, ".git": cove.InvalidArgument, "x/.git/y": cove.InvalidArgument} {
		id := cove.NewSandboxID()
		_, err := s.Create(t.Context(), workspace.Spec{ID: id, Name: "quiet-heron", User: cove.CodeUser,
			Owner: owner, Repository: &workspace.Repository{Source: dir, Ignored: []string{name}}}, nil)
		if cove.ErrorCode(err) != code {
			t.Errorf("%q: %v, want %s", name, err, code)
		}
	}
	_, err := s.Create(t.Context(), workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser,
		Owner: owner, Repository: &workspace.Repository{Source: "o/r", Ignored: []string{"x"}}}, nil)
	if cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("of an address: %v", err)
	}
}
